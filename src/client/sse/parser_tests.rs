//! Tests of the parser of event streams: each stream whole, a byte at a time, and in two pieces at every place.

use super::*;

/// Returns the events of a stream that comes in these pieces.
fn parse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Event>, ParseError> {
    let mut parser = Parser::new(String::new());
    parse_with(&mut parser, pieces)
}

fn parse_with<'a>(parser: &mut Parser, pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Event>, ParseError> {
    let mut events = Vec::new();
    for mut piece in pieces {
        while let Some(event) = parser.next_event(&mut piece)? {
            events.push(event);
        }
        assert!(piece.is_empty());
    }
    Ok(events)
}

/// Returns the events of a stream, after it was parsed in all ways.
fn events(stream: &[u8]) -> Vec<Event> {
    let whole = parse([stream]).unwrap();
    assert_eq!(parse(stream.chunks(1)).unwrap(), whole, "a byte at a time: {:?}", stream.escape_ascii().to_string());
    for at in 0..=stream.len() {
        let (one, two) = stream.split_at(at);
        assert_eq!(parse([one, two]).unwrap(), whole, "split at {at}: {:?}", stream.escape_ascii().to_string());
        assert_eq!(parse([one, b"", two]).unwrap(), whole);
    }
    whole
}

/// Returns type, data and ID of each event of a stream.
fn shown(stream: &str) -> Vec<String> {
    let shown = |event: Event| format!("{} {:?} {:?}", event.event, event.data, event.id);
    events(stream.as_bytes()).into_iter().map(shown).collect()
}

/// Returns the data of each event of a stream.
fn data(stream: &str) -> Vec<String> {
    events(stream.as_bytes()).into_iter().map(|event| event.data).collect()
}

#[test]
fn examples_of_the_standard() {
    assert_eq!(data("data: YHOO\ndata: +2\ndata: 10\n\n"), ["YHOO\n+2\n10"]);
    let blocks = ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n";
    let expected = [r#"message "first event" "1""#, r#"message "second event" """#, r#"message " third event" """#];
    assert_eq!(shown(blocks), expected);
    assert_eq!(data("data\n\ndata\ndata\n\ndata:"), ["", "\n"], "the last block is not complete");
    assert_eq!(data("data:test\n\ndata: test\n\n"), ["test", "test"]);
}

#[test]
fn lines_end_with_cr_lf_or_both() {
    for end in ["\n", "\r", "\r\n"] {
        let stream = ["data: a", "data: b", "", "event: e", "data: c", "", ""].join(end);
        assert_eq!(shown(&stream), [r#"message "a\nb" """#, r#"e "c" """#], "{end:?}");
    }
    assert_eq!(data("data:a\rdata:b\r\ndata:c\n\ndata:d\r\r"), ["a\nb\nc", "d"]);
    assert_eq!(data("data:a\n\r\ndata:b\r\n\n"), ["a", "b"], "LF, then CRLF; CRLF, then LF");
    assert_eq!(data("data:a\n\rdata:b\r\r\ndata:c\n\n"), ["a", "b", "c"], "LF, then CR; CR, then CRLF");
    assert_eq!(data("data:a\u{2028}b\u{85}\u{c}\u{b}c\n\n"), ["a\u{2028}b\u{85}\u{c}\u{b}c"]);
}

#[test]
fn an_event_comes_with_the_cr_that_ends_it() {
    let mut parser = Parser::new(String::new());
    assert_eq!(parse_with(&mut parser, [&b"data:a\r\n\r"[..]]).unwrap().len(), 1);
    assert_eq!(parse_with(&mut parser, [&b"\ndata:b\r\n\r"[..]]).unwrap().len(), 1);
    assert!(parse_with(&mut parser, [&b"\n\n\n"[..]]).unwrap().is_empty());
}

#[test]
fn a_byte_order_mark_is_ignored_at_the_beginning_only() {
    assert_eq!(data("\u{feff}data:a\n\n"), ["a"]);
    assert_eq!(data("\u{feff}\u{feff}data:a\n\ndata:b\n\n"), ["b"]);
    assert_eq!(data("data:a\n\n\u{feff}data:b\n\ndata:c\n\n"), ["a", "c"]);
    assert_eq!(data("\n\u{feff}data:a\n\ndata:\u{feff}b\n\n"), ["\u{feff}b"]);
    assert_eq!(data("\u{feff}\n\ndata:a\n\n"), ["a"]);
}

#[test]
fn names_and_values() {
    assert_eq!(data("data:\u{20}\u{20}a\n\ndata:\ta\n\ndata: \n\n"), [" a", "\ta", ""], "one space is left out");
    assert_eq!(data("data::a:b\n\n"), [":a:b"]);
    assert_eq!(data("Data:a\n data:b\ndata :c\ndatab:d\n\ndata:e\n\n"), ["e"], "names are exact");
    assert_eq!(data(":data:a\n:\n: \ndata:b\n:\n\n"), ["b"], "comments");
    assert_eq!(data("unknown:x\nunknown\ndata:a\n\n"), ["a"]);
    assert_eq!(data("data:a\0b\n\n"), ["a\0b"]);
    assert_eq!(data("data:\u{20}ä€🦀\n\n"), ["ä€🦀"]);
    let invalid = events(b"data:a\xffb\xe2\x82\n\ndata:\xf0\n\nda\xffta:x\n\n");
    assert_eq!(invalid.into_iter().map(|event| event.data).collect::<Vec<_>>(), ["a\u{fffd}b\u{fffd}", "\u{fffd}"]);
}

#[test]
fn types() {
    let stream =
        "event:a\nevent: b\ndata:1\n\ndata:2\n\nevent:c\n\ndata:3\n\nevent:d\nevent\ndata:4\n\nevent: \ndata:5\n\n";
    let expected = [r#"b "1" """#, r#"message "2" """#, r#"message "3" """#, r#"message "4" """#, r#"message "5" """#];
    assert_eq!(shown(stream), expected);
}

#[test]
fn ids() {
    let ids = |stream: &str| events(stream.as_bytes()).into_iter().map(|event| event.id).collect::<Vec<_>>();
    assert_eq!(ids("data:1\n\nid:a\ndata:2\n\ndata:3\n\nid\ndata:4\n\n"), ["", "a", "a", ""]);
    assert_eq!(ids("id:a\n\ndata:1\n\n"), ["a"], "a block without data sets the ID as well");
    assert_eq!(ids("id:a\nid:b\0\ndata:1\n\nid:\0\ndata:2\n\n"), ["a", "a"], "an ID with NUL is ignored");
    assert_eq!(ids("id:a\nid:b\u{1}\ndata:1\n\nid:\u{7f}\ndata:2\n\n"), ["a", "a"], "a header cannot have it");
    assert_eq!(ids("id:a\tb\ndata:1\n\n"), ["a\tb"]);
    assert_eq!(ids("data:1\nid: \u{20}…\n\n"), [" …"]);
}

#[test]
fn the_id_of_a_block_counts_when_the_block_is_complete() {
    let mut parser = Parser::new("0".to_owned());
    let parsed = parse_with(&mut parser, [&b"data:a\n\nid:1\ndata:b\n\nid:2\ndata:c\n"[..]]).unwrap();
    assert_eq!(parsed.iter().map(|event| event.id.as_str()).collect::<Vec<_>>(), ["0", "1"]);
    assert_eq!(parser.last_event_id(), "1");
    assert_eq!(parse_with(&mut parser, [&b"\n"[..]]).unwrap()[0].id, "2");
    assert_eq!(parser.last_event_id(), "2");
}

#[test]
fn reconnection_times_are_digits() {
    let retry = |value: &str| {
        let mut parser = Parser::new(String::new());
        let stream = format!("retry:{value}\ndata:x\n\n");
        let parsed = parse_with(&mut parser, [stream.as_bytes()]).unwrap();
        assert_eq!(parser.retry(), parsed[0].retry);
        parser.retry().map(|retry| retry.as_millis() as u64)
    };
    assert_eq!([retry("1000"), retry(" 0"), retry("007")], [Some(1_000), Some(0), Some(7)]);
    for nonsense in ["", " ", "1000x", "-1", "+1", "1.5", "1 000", "  1", "1 ", "0x1", "１"] {
        assert_eq!(retry(nonsense), None, "{nonsense:?}");
    }
    let mut parser = Parser::new(String::new());
    let endless = format!("retry:{}\n", "9".repeat(100));
    assert!(parse_with(&mut parser, [endless.as_bytes()]).unwrap().is_empty());
    assert_eq!(parser.retry(), Some(Duration::MAX), "at once, without the end of the block");
    let parsed = parse_with(&mut parser, [&b"data:1\n\ndata:2\n\n"[..]]).unwrap();
    assert_eq!([parsed[0].retry, parsed[1].retry], [Some(Duration::MAX), None]);
}

#[test]
fn what_follows_the_last_empty_line_is_no_event() {
    for rest in ["data", "data:b", "data:b\n", "data:b\r", "id:7\ndata:b\n"] {
        assert_eq!(data(&format!("data:a\n\n{rest}")), ["a"], "{rest:?}");
    }
    assert!(data("").is_empty() && data("\n\n\n").is_empty() && data("event:x\nid:1\nretry:5\n\n").is_empty());
}

#[test]
fn a_stream_has_the_same_events_in_whatever_pieces_it_comes() {
    let parts: [&[u8]; 16] = [
        b"data",
        b"data:",
        b"id:",
        b"event",
        b"retry:1",
        b":",
        b" ",
        b"\r",
        b"\n",
        b"\r\n",
        b"\n\n",
        b"\0",
        b"x",
        b"\xef\xbb\xbf",
        b"\xe2\x82",
        b"\xac",
    ];
    let mut random = fastrand::Rng::with_seed(1);
    let mut seen = 0;
    for _ in 0..1_000 {
        let stream: Vec<u8> = (0..random.usize(..40)).flat_map(|_| parts[random.usize(..16)]).copied().collect();
        seen += events(&stream).len();
    }
    assert!(seen > 200, "{seen}");
}

#[test]
fn a_line_and_an_event_have_limits() {
    let parser = |line, event| {
        let mut parser = Parser::new(String::new());
        *parser.limits_mut() = ParserLimits { line, event };
        parser
    };
    let long = |length: usize| [b"data:".as_slice(), &vec![b'x'; length], b"\n\n"].concat();
    for size in [1, 7, 1_000] {
        let fits = parse_with(&mut parser(105, 1_000), long(100).chunks(size)).unwrap();
        assert_eq!(fits[0].data.len(), 100);
        let failed = parse_with(&mut parser(105, 1_000), long(101).chunks(size));
        assert_eq!(failed, Err(ParseError::Line(105)));
        let comment = [b":".as_slice(), &[b' '; 200]].concat();
        assert_eq!(parse_with(&mut parser(105, 1_000), comment.chunks(size)), Err(ParseError::Line(105)));
        let block = b"data:1234567\n".repeat(10);
        assert_eq!(parse_with(&mut parser(105, 75), block.chunks(size)), Err(ParseError::Event(75)));
        let empty = b"data\n".repeat(100);
        assert_eq!(parse_with(&mut parser(105, 75), empty.chunks(size)), Err(ParseError::Event(75)));
    }
}

#[test]
fn an_id_and_a_type_have_a_limit_because_each_event_repeats_the_id() {
    for (name, shown) in [("id", "ID"), ("event", "type")] {
        let with = |length: usize| format!("{name}:{}\ndata:x\n\n", "1".repeat(length)).into_bytes();
        for size in [1, 1_000, 10_000] {
            assert_eq!(parse(with(4_096).chunks(size)).unwrap().len(), 1);
            assert_eq!(parse(with(4_097).chunks(size)), Err(ParseError::Field(shown)), "in pieces of {size}");
        }
    }
    assert_eq!(ParseError::Field("ID").to_string(), "the ID of an event is longer than 4096 bytes");
}

#[test]
fn memory_is_bounded_whatever_comes() {
    let mut parser = Parser::new(String::new());
    let piece = vec![b'x'; 64 * 1024];
    let endless = std::iter::repeat_n(piece.as_slice(), 1_000);
    assert_eq!(parse_with(&mut parser, endless), Err(ParseError::Line(16 * 1024 * 1024)));
    assert!(parser.line.capacity() <= 32 * 1024 * 1024);
    let mut parser = Parser::new(String::new());
    let line = [b"data:".as_slice(), &piece[5..], b"\n"].concat();
    let endless = std::iter::repeat_n(line.as_slice(), 1_000);
    assert_eq!(parse_with(&mut parser, endless), Err(ParseError::Event(16 * 1024 * 1024)));
    assert!(parser.block.data.capacity() <= 32 * 1024 * 1024);
    // An endless block without data keeps its last type and ID only.
    let mut parser = Parser::new(String::new());
    let lines = b"event:type\nid:identity\nretry:5\n:comment\nunknown:value\n".repeat(100);
    for _ in 0..100 {
        assert!(parse_with(&mut parser, lines.chunks(997)).unwrap().is_empty());
    }
    assert!(parser.line.capacity() + parser.block.data.capacity() + parser.block.event.capacity() < 1_000);
    // After a long line, its buffer is not kept.
    let mut parser = Parser::new(String::new());
    let long = [b"data:".as_slice(), &vec![b'x'; 500_000], b"\n\n"].concat();
    assert_eq!(parse_with(&mut parser, long.chunks(1_000)).unwrap()[0].data.len(), 500_000);
    assert!(parser.line.capacity() <= MAX_KEPT);
}
