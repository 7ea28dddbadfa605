//! The check of HAR documents against the format finds what is wrong with them.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::format::Kind::{self, Date, Flag, Length, List, Object, Status, Text, Time, TimeOrNone, Url};
use super::format::{TABLE, faults};

/// Returns a document in which each object of the table has all its fields.
fn whole() -> Value {
    let mut document = sample(Object("document"));
    document["log"]["version"] = "1.2".into();
    let entry = &mut document["log"]["entries"][0];
    entry["time"] = 60.into();
    entry["request"]["url"] = "http://a.test/?text=text".into();
    document
}

fn sample(kind: Kind) -> Value {
    match kind {
        Text => "text".into(),
        Url => "http://a.test/".into(),
        Flag => true.into(),
        Status | Length | Time | TimeOrNone => 10.into(),
        Date => "2009-07-24T19:20:30.45+01:00".into(),
        List(name) => json!([sample(Object(name))]),
        Object(name) => {
            let (_, fields) = TABLE.iter().find(|(object, _)| *object == name).unwrap();
            let fields = fields.iter().map(|(field, kind, _)| ((*field).to_owned(), sample(*kind)));
            fields.chain([("comment".to_owned(), "text".into()), ("_own".to_owned(), 7.into())]).collect()
        }
    }
}

/// Calls `visit` with the pointer of each object in a document, and its name in the table.
fn each_object(name: &'static str, value: &Value, path: &str, visit: &mut dyn FnMut(&'static str, &str)) {
    visit(name, path);
    let (_, fields) = TABLE.iter().find(|(object, _)| *object == name).unwrap();
    for (field, kind, _) in *fields {
        match kind {
            Object(name) => each_object(name, &value[field], &format!("{path}/{field}"), visit),
            List(name) => each_object(name, &value[field][0], &format!("{path}/{field}/0"), visit),
            _ => {}
        }
    }
}

#[test]
fn a_whole_document_is_valid() {
    assert_eq!(faults(&whole()), [""; 0]);
}

#[test]
fn each_missing_or_wrong_or_strange_field_is_found() {
    let whole = whole();
    let mut seen = HashSet::new();
    each_object("document", &whole, "", &mut |name, path| {
        seen.insert(name);
        let (_, fields) = TABLE.iter().find(|(object, _)| *object == name).unwrap();
        for (field, _, is_required) in *fields {
            let mut without = whole.clone();
            without.pointer_mut(path).unwrap().as_object_mut().unwrap().remove(*field);
            if *is_required {
                assert!(!faults(&without).is_empty(), "{path} without {field}");
            }
            let mut wrong = whole.clone();
            wrong.pointer_mut(path).unwrap()[field] = Value::Null;
            assert!(!faults(&wrong).is_empty(), "{path} with a wrong {field}");
        }
        let mut strange = whole.clone();
        strange.pointer_mut(path).unwrap()["own"] = 7.into();
        assert_eq!(faults(&strange), [format!("{path}/own is no field of the format")]);
    });
    assert_eq!(seen.len(), TABLE.len());
}

#[test]
fn values_that_break_the_rules_are_found() {
    let cases = [
        ("/log/version", json!("1.1")),
        ("/log/entries/0/pageref", json!("other")),
        ("/log/entries/0/time", json!(70)),
        ("/log/entries/0/timings/ssl", json!(11)),
        ("/log/entries/0/timings/send", json!(-1)),
        ("/log/entries/0/timings/dns", json!(-2)),
        ("/log/entries/0/request/url", json!("/relative")),
        ("/log/entries/0/request/url", json!("http://a.test/?text=text#part")),
        ("/log/entries/0/request/url", json!("http://a.test/")),
        ("/log/entries/0/request/bodySize", json!(1.5)),
        ("/log/entries/0/startedDateTime", json!("2009-07-24T19:20:30")),
        ("/log/entries/0/startedDateTime", json!("2009-7-24T19:20:30Z")),
        ("/log/entries/0/startedDateTime", json!("Fri, 24 Jul 2009 19:20:30 GMT")),
    ];
    for (path, value) in cases {
        let mut document = whole();
        *document.pointer_mut(path).unwrap() = value.clone();
        assert_eq!(faults(&document).len(), 1, "{path} {value}: {:?}", faults(&document));
    }
    let mut twice = whole();
    let again = twice["log"]["pages"][0].clone();
    twice["log"]["pages"].as_array_mut().unwrap().push(again);
    let mut late = twice["log"]["entries"][0].clone();
    late["startedDateTime"] = "2008-07-24T19:20:30Z".into();
    twice["log"]["entries"].as_array_mut().unwrap().push(late);
    assert_eq!(faults(&twice).len(), 2, "{:?}", faults(&twice));
}
