//! Forms of several parts, read by another implementation of the format.

use std::sync::{Arc, Mutex};

use futures_util::{StreamExt, TryStreamExt, stream};
use http_body_util::BodyExt;
use speeddial::http::{HeaderMap, HeaderValue};
use speeddial::multipart::{Form, Part};
use speeddial::{Body, ErrorKind};

use super::common::{Scratch, clients};
use support::full;
use support::http_server::HttpServer;

/// A part as the server reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReadPart {
    name: String,
    file_name: Option<String>,
    media_type: Option<String>,
    headers: usize,
    content: Vec<u8>,
}

/// Returns a part without a file name and media type.
fn text(name: &str, content: &str) -> ReadPart {
    let content = content.as_bytes().to_vec();
    ReadPart { name: name.to_owned(), file_name: None, media_type: None, headers: 1, content }
}

/// A form as the server reads it: the announced length, the length, and the parts.
type ReadForm = (Option<u64>, u64, Vec<ReadPart>);

/// Starts a server that reads forms. It redirects from `/moved` to `/`.
fn server(http2: bool) -> (HttpServer, Arc<Mutex<Vec<ReadForm>>>) {
    let forms = Arc::new(Mutex::new(Vec::new()));
    let seen = forms.clone();
    let server = HttpServer::start_as(http2, move |request: hyper::Request<hyper::body::Incoming>| {
        let seen = seen.clone();
        async move {
            let (head, body) = request.into_parts();
            let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
            let boundary = multer::parse_boundary(header("content-type").unwrap()).unwrap();
            let announced = header("content-length").map(|length| length.parse().unwrap());
            let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
                return hyper::Response::builder().status(400).body(full("")).unwrap();
            };
            let length = body.len() as u64;
            let parts = read(body, boundary).await;
            seen.lock().unwrap().push((announced, length, parts));
            let status = if head.uri.path() == "/moved" { 307 } else { 200 };
            hyper::Response::builder().status(status).header("location", "/").body(full("read")).unwrap()
        }
    });
    (server.unwrap(), forms)
}

async fn read(body: bytes::Bytes, boundary: String) -> Vec<ReadPart> {
    let mut form = multer::Multipart::new(stream::iter([Ok::<_, std::io::Error>(body)]), boundary);
    let mut parts = Vec::new();
    while let Some(part) = form.next_field().await.unwrap() {
        parts.push(ReadPart {
            name: part.name().unwrap().to_owned(),
            file_name: part.file_name().map(str::to_owned),
            media_type: part.content_type().map(ToString::to_string),
            headers: part.headers().len(),
            content: part.bytes().await.unwrap().to_vec(),
        });
    }
    parts
}

/// Sends a form over both versions of HTTP, and returns its parts as the server read them. `length_is_known` is false if
/// the form has no length.
async fn send(form: impl AsyncFn() -> Form, length_is_known: bool) -> Vec<ReadPart> {
    let mut read = Vec::new();
    for (http2, client) in clients() {
        let (server, forms) = server(http2);
        let url = format!("http://{}/", server.address());
        let response = client.post(url).multipart(form().await).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "read");
        let (announced, length, parts) = forms.lock().unwrap().pop().unwrap();
        assert_eq!(announced, length_is_known.then_some(length), "HTTP/2: {http2}");
        read.push(parts);
    }
    assert_eq!(read[0], read[1]);
    read.remove(0)
}

fn pieces() -> Body {
    Body::wrap_stream(stream::iter(["pie", "ces"]).map(Ok::<_, std::io::Error>))
}

#[tokio::test]
async fn forms_are_read_as_they_were_made() {
    let photo = Scratch::named("photo.JPG", vec![0xff; 200_000]);
    let unknown = Scratch::named("no extension", "");
    let form = async || {
        let with_headers = Part::text("{}").headers(HeaderMap::from_iter([(
            speeddial::header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        )]));
        let form = Form::new().text("text", "line 1\nline 2\r\n").text("empty", "").text("text", "again");
        let form = form.part("bytes", Part::bytes(vec![0, 13, 10, 45, 45, 0]).mime_str("a/b; c=d").unwrap());
        let form = form.part("stream", Part::stream_with_length(pieces(), 6).file_name("s.txt"));
        let form = form.part("json", with_headers).part("long", Part::text("x".repeat(100_000)));
        form.file("photo", photo.path()).await.unwrap().file("other", unknown.path()).await.unwrap()
    };
    let parts = send(form, true).await;
    let typed = |part, media_type: &str| ReadPart { media_type: Some(media_type.to_owned()), headers: 2, ..part };
    let named = |part, file_name: &str| ReadPart { file_name: Some(file_name.to_owned()), ..part };
    let photo = ReadPart { content: vec![0xff; 200_000], ..text("photo", "") };
    let expected = [
        text("text", "line 1\nline 2\r\n"),
        text("empty", ""),
        text("text", "again"),
        typed(text("bytes", "\0\r\n--\0"), "a/b; c=d"),
        named(text("stream", "pieces"), "s.txt"),
        typed(text("json", "{}"), "application/json"),
        text("long", &"x".repeat(100_000)),
        typed(named(photo, "photo.JPG"), "image/jpeg"),
        typed(named(text("other", ""), "no extension"), "application/octet-stream"),
    ];
    assert_eq!(parts, expected);
    assert_eq!(send(async || Form::new(), true).await, []);
    let form = async || Form::new().text("a", "b").part("stream", Part::stream(pieces())).text("c", "d");
    assert_eq!(send(form, false).await, [text("a", "b"), text("stream", "pieces"), text("c", "d")]);
}

#[tokio::test]
async fn hazard_names_cannot_add_headers_or_parts() {
    let hostile = [
        "quote\"; x=\"evil.sh",
        "x\"\r\nContent-Type: text/html\r\n\r\nbody\r\n--",
        "lone\rreturn and\nnewline",
        "back\\slash\\\"",
        "größe 日本語 🦀",
        "",
    ];
    for name in hostile {
        let form = async || Form::new().part(name, Part::text("1").file_name(name)).text("next", "2");
        let parts = send(form, true).await;
        let escaped = |name: &str| name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A");
        let normalised = name.replace("\r\n", "\n").replace('\r', "\n").replace('\n', "\r\n");
        let first = ReadPart { file_name: Some(escaped(name)), ..text(&escaped(&normalised), "1") };
        assert_eq!(parts, [first, text("next", "2")], "{name:?}");
    }
    assert!(Part::text("x").mime_str("text/plain\r\nx-evil: 1").is_err());

    // With percent encoding a name may be a value without quotes.
    for encode in [Form::percent_encode_noop, Form::percent_encode_path_segment, Form::percent_encode_attr_chars] {
        for name in hostile.into_iter().chain(["ü;filename=evil.sh", "ü; filename=\"evil.sh\"", "ü,filename=evil.sh"])
        {
            let form = encode(Form::new()).part(name, Part::text("1"));
            let bytes: Vec<bytes::Bytes> = form.into_stream().try_collect().await.unwrap();
            let text = String::from_utf8(bytes.concat()).unwrap();
            let lines: Vec<_> = text.split("\r\n").collect();
            let parameters = lines[1].strip_prefix("Content-Disposition: form-data; name").unwrap();
            // What is not within quotes.
            let bare: String = parameters.split('"').step_by(2).collect();
            assert!(!bare.contains([';', ',', ' ']) && bare.matches('=').count() == 1, "{parameters}");
            assert_eq!((lines.len(), &lines[2..4]), (6, &["", "1"][..]), "{text}");
        }
    }

    // A parameter within quotes, which the parser above would read as one.
    let name = "a\"; filename=\"evil.sh\r\n";
    let form = Form::new().part(name, Part::text("1").file_name(name));
    let boundary = form.boundary().to_owned();
    let bytes: Vec<bytes::Bytes> = form.into_stream().try_collect().await.unwrap();
    let escaped = "a%22; filename=%22evil.sh%0D%0A";
    let header = format!("Content-Disposition: form-data; name=\"{escaped}\"; filename=\"{escaped}\"");
    assert_eq!(bytes.concat(), format!("--{boundary}\r\n{header}\r\n\r\n1\r\n--{boundary}--\r\n").as_bytes());
}

#[tokio::test]
async fn a_form_of_files_survives_a_redirect_and_one_with_a_stream_does_not() {
    let file = Scratch::new(vec![b'f'; 500_000]);
    for (http2, client) in clients() {
        let (server, forms) = server(http2);
        let url = format!("http://{}/moved", server.address());
        let form = Form::new().text("a", "b").file("file", file.path()).await.unwrap();
        let request = client.post(&url).multipart(form);
        assert!(request.try_clone().is_some());
        let response = request.send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.redirects().len()), (200, 1));
        let forms = std::mem::take(&mut *forms.lock().unwrap());
        assert_eq!(forms.len(), 2);
        assert_eq!(forms[0], forms[1]);
        assert_eq!((forms[0].0, forms[0].2[1].content.len()), (Some(forms[0].1), 500_000));

        let form = Form::new().part("stream", Part::stream(pieces()));
        let error = client.post(&url).multipart(form).send().await.unwrap_err();
        assert!(error.is_redirect(), "{error}");
    }
}

#[tokio::test]
async fn a_stream_that_fails_in_a_form_fails_the_request() {
    for (http2, client) in clients() {
        let (server, _) = server(http2);
        let url = format!("http://{}/", server.address());
        let broken = || Body::wrap_stream(stream::iter([Ok("hel"), Err(std::io::Error::other("the disk is gone"))]));
        let failing = [
            (Part::stream(broken()), "the disk is gone"),
            (Part::stream_with_length(broken(), 9), "the disk is gone"),
            (Part::stream_with_length(pieces(), 5), "the body has more than the announced 5 bytes"),
            (Part::stream_with_length(pieces(), 7), "the body has 6 of the announced 7 bytes"),
            (Part::stream_with_length("bytes", 7), "the body has 5 of the announced 7 bytes"),
        ];
        for (part, what) in failing {
            let form = Form::new().text("before", "1").part("broken", part).text("after", "2");
            let error = client.post(&url).multipart(form).send().await.unwrap_err();
            let expected = format!("POST {url}: the body of the request failed: {what}");
            assert_eq!((error.kind(), format!("{error:#}")), (ErrorKind::Exchange, expected));
        }
        let form = Form::new().text("a", "b");
        assert_eq!(client.post(&url).multipart(form).send().await.unwrap().text().await.unwrap(), "read");
    }
}

#[tokio::test]
async fn a_form_may_have_many_parts() {
    let names: Vec<_> = (0..10_000).map(|number| format!("part {number}")).collect();
    let bytes = async || names.iter().fold(Form::new(), |form, name| form.text(name.clone(), name.clone()));
    let streams = async || {
        let part = |name: &str| {
            let name = name.to_owned();
            Part::stream(Body::wrap_stream(stream::iter([Ok::<_, std::io::Error>(name)])))
        };
        names.iter().fold(Form::new(), |form, name| form.part(name.clone(), part(name)))
    };
    let expected: Vec<_> = names.iter().map(|name| text(name, name)).collect();
    assert_eq!(send(bytes, true).await, expected);
    assert_eq!(send(streams, false).await, expected);
}

#[tokio::test]
async fn the_content_type_names_the_boundary() {
    let client = speeddial::Client::new();
    let content_type = |given: Option<String>, form: Form| {
        let request = client.post("http://127.0.0.1/");
        let request = given.into_iter().fold(request, |request, given| request.header("content-type", given));
        let request = request.multipart(form).build().unwrap();
        let values: Vec<_> = request.headers().get_all("content-type").iter().collect();
        assert_eq!(values.len(), 1);
        values[0].to_str().unwrap().to_owned()
    };
    let form = || Form::new().text("a", "b");
    let own = form();
    let usual = format!("multipart/form-data; boundary={}", own.boundary());
    assert_eq!(content_type(None, own), usual);
    let own = form();
    let usual = format!("multipart/form-data; boundary={}", own.boundary());
    assert_eq!(content_type(Some("multipart/form-data; boundary=x".to_owned()), own), usual);
    let own = form();
    let related = format!("multipart/related; boundary=\"{}\"", own.boundary());
    assert_eq!(content_type(Some(related.clone()), own), related);
}

#[tokio::test]
async fn a_form_is_a_stream_of_its_bytes() {
    let form = Form::new().text("a", "b").part("stream", Part::stream(pieces()));
    let boundary = form.boundary().to_owned();
    let bytes: Vec<bytes::Bytes> = form.into_stream().try_collect().await.unwrap();
    assert_eq!(read(bytes.concat().into(), boundary).await, [text("a", "b"), text("stream", "pieces")]);
    let broken = Body::wrap_stream(stream::iter([Err::<&str, _>(std::io::Error::other("the disk is gone"))]));
    let all: Result<Vec<_>, _> = Form::new().part("x", Part::stream(broken)).into_stream().try_collect().await;
    assert_eq!(format!("{:#}", all.unwrap_err()), "the body of the request failed: the disk is gone");
}
