//! Reports of calls: HAR, pages, pictures and text of what a server and a program said.

use speeddial::trace::waterfall_svg;
use speeddial_inspect::{Har, Recorder, StateTable};

use crate::common::{Server, block_on, contains, lines};

const SECRET: &str = "k3pt-0ut-of-reports";

/// Makes a call and writes every report of it: a line with the path and query, one for a row of a table, and one for each line of the
/// answer's head.
pub(crate) fn run(data: &[u8]) {
    if contains(data, SECRET.as_bytes()) {
        return;
    }
    let lines = lines(data);
    let path = String::from_utf8_lossy(&lines[0]).into_owned();
    let row = lines.get(1).map(|line| String::from_utf8_lossy(line).into_owned()).unwrap_or_default();
    let reports = Reports::of(&path, &row, lines.get(2..).unwrap_or_default());
    let Some(reports) = reports else { return };
    let blank = Reports::of("", "", &[]).expect("a plain call");
    let har: serde_json::Value = serde_json::from_str(&reports.har).expect("HAR is JSON");
    assert_eq!(har["log"]["entries"].as_array().map(Vec::len), Some(1));
    serde_json::from_str::<serde_json::Value>(&reports.json).expect("a snapshot is JSON");
    let pages = [&reports.html, &reports.svg];
    for (report, plain) in pages.into_iter().zip([&blank.html, &blank.svg]) {
        for tag in tags(data) {
            assert!(!report.contains(tag) || plain.contains(tag), "{tag:?} of the input in a page");
        }
    }
    // Text goes to terminals, which act on control characters.
    for line in reports.text.lines() {
        assert!(!line.contains(char::is_control), "{line:?}");
    }
    for report in [&reports.har, &reports.json, &reports.html, &reports.svg, &reports.text] {
        assert!(!report.contains(SECRET), "a secret in a report");
    }
}

/// Returns all that looks like the beginning of a tag.
fn tags(data: &[u8]) -> impl Iterator<Item = &str> {
    data.windows(4).filter(|window| window[0] == b'<').filter_map(|window| str::from_utf8(window).ok())
}

struct Reports {
    har: String,
    json: String,
    html: String,
    svg: String,
    text: String,
}

impl Reports {
    /// Makes a call with secrets in its headers, its query and its answer. Returns `None` if there is no answer.
    fn of(path: &str, row: &str, headers: &[Vec<u8>]) -> Option<Self> {
        let mut answer = b"HTTP/1.1 200 OK\r\n".to_vec();
        for header in headers {
            answer.extend_from_slice(header);
            answer.extend_from_slice(b"\r\n");
        }
        answer.extend_from_slice(format!("set-cookie: session={SECRET}\r\ncontent-length: 0\r\n\r\n").as_bytes());
        let server = Server::new([answer]);
        let (har, recorder) = (Har::last(4), Recorder::new());
        block_on(async {
            let client = server.client().observer(har.clone()).observer(recorder.clone()).build().expect("a client");
            let mut url = speeddial::Url::parse("http://a.test/").expect("a URL");
            let (path, query) = path.split_once('?').unwrap_or((path, ""));
            url.set_path(path);
            url.set_query((!query.is_empty()).then_some(query));
            url.query_pairs_mut().append_pair("token", SECRET);
            let request = client.get(url).bearer_auth(SECRET).header("cookie", SECRET).header("x-api-key", SECRET);
            let mut response = request.send().await.ok()?;
            while let Ok(Some(_)) = response.chunk().await {}
            let timings = response.timings().clone();
            drop(response);
            let mut snapshot = recorder.snapshot().with_client(&client);
            snapshot.add_table(StateTable::new(row, ["Column", "<zq>"]).row([row, row]));
            Some(Self {
                har: har.to_json(),
                json: snapshot.to_json(),
                html: snapshot.to_html(),
                svg: timings.to_svg() + &waterfall_svg([(row, &timings)]),
                text: format!("{}\n{timings}", timings.waterfall()),
            })
        })
    }
}
