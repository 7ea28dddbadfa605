//! Forms of several parts: what a second parser reads from what the client writes.

use http_body_util::BodyExt;
use speeddial::Client;
use speeddial::bytes::Bytes;
use speeddial::multipart::{Form, Part};

use crate::common::{block_on, lines, split};

/// A part as it was given.
struct Given {
    name: String,
    file_name: Option<String>,
    mime: Option<String>,
    value: Vec<u8>,
}

/// Writes a form: each line is a part with its name, file name and media type, each after a `|`, and its value after a `=`.
/// The first byte chooses how names are encoded, and whether the values are streams.
pub(crate) fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let given: Vec<_> = lines(data).iter().filter_map(|line| read(line)).collect();
    let form = match choice % 3 {
        0 => Form::new(),
        1 => Form::new().percent_encode_attr_chars(),
        _ => Form::new().percent_encode_noop(),
    };
    let is_sized = choice & 4 == 0;
    let mut form = form;
    for part in &given {
        let value = part.value.clone();
        let length = value.len() as u64;
        let mut made = match (choice & 8 == 0, is_sized) {
            (true, _) => Part::bytes(value),
            (false, true) => Part::stream_with_length(value, length),
            (false, false) => Part::stream(speeddial::Body::wrap_stream(pieces(value))),
        };
        if let Some(file_name) = part.file_name.clone() {
            made = made.file_name(file_name);
        }
        if let Some(mime) = &part.mime {
            let Ok(with_mime) = made.mime_str(mime) else { return };
            made = with_mime;
        }
        form = form.part(part.name.clone(), made);
    }
    let boundary = form.boundary().to_owned();
    // A boundary in a value would be found only by whoever guesses 16 random bytes.
    block_on(async {
        let request = Client::new().post("http://a.test/").multipart(form).build();
        let Ok(mut request) = request else { return };
        let body = request.body_mut().take().expect("a form is a body");
        let announced = body.content_length();
        let Ok(sent) = body.collect().await else { return };
        let sent = sent.to_bytes();
        assert!(announced.is_none_or(|announced| announced == sent.len() as u64), "another length than announced");
        assert!(announced.is_some() || !is_sized || given.is_empty(), "no length though that of each part is known");
        compare(sent, &boundary, &given).await;
    });
}

fn read(line: &[u8]) -> Option<Given> {
    let (head, value) = split(line, b'=');
    let head = String::from_utf8(head.to_vec()).ok()?;
    let mut head = head.splitn(3, '|').map(str::to_owned);
    let name = head.next()?;
    Some(Given { name, file_name: head.next(), mime: head.next(), value: value.to_vec() })
}

fn pieces(value: Vec<u8>) -> impl futures_util::Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static {
    let pieces: Vec<_> = value.chunks(3).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    futures_util::stream::iter(pieces)
}

/// Compares the form with what a second parser reads. Names are compared where they are written as they are.
async fn compare(sent: Bytes, boundary: &str, given: &[Given]) {
    let is_plain =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
    // Browsers write a backslash and control characters as they are, which no other parser reads.
    let is_readable = |name: &str| {
        !name.contains(|letter: char| letter == '\\' || (letter.is_control() && !matches!(letter, '\r' | '\n')))
    };
    let are_readable = given
        .iter()
        .all(|part| is_readable(&part.name) && part.file_name.as_ref().is_none_or(|name| is_readable(name)));
    if !are_readable || given.is_empty() {
        return;
    }
    let mut form = multer::Multipart::new(futures_util::stream::iter([Ok::<_, std::io::Error>(sent)]), boundary);
    for part in given {
        let field = form.next_field().await.expect("a form").expect("as many parts as were given");
        let lines = 1 + usize::from(field.headers().contains_key("content-type"));
        assert_eq!(field.headers().len(), lines, "a header that nobody gave: {:?}", field.headers());
        if is_plain(&part.name) {
            assert_eq!(field.name(), Some(&*part.name));
        }
        if let Some(file_name) = part.file_name.as_ref().filter(|name| is_plain(name) && !name.is_empty()) {
            assert_eq!(field.file_name(), Some(&**file_name));
        }
        assert_eq!(field.bytes().await.expect("a value"), part.value, "the value of {:?}", part.name);
    }
    assert!(form.next_field().await.expect("a form").is_none(), "more parts than were given");
}
