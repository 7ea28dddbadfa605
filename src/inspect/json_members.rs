//! Parts of timings as members of a JSON object, for the documents that are written without the feature `json`.

use std::time::Duration;

use super::json::JsonWriter;
use crate::trace::Reason;
use crate::trace::ServerTiming;
use crate::trace::TlsFacts;
use crate::trace::nanos;

/// The form of the times in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeForm {
    /// Milliseconds, exact to the nanosecond, in members such as `time`.
    Millis,
    /// Whole nanoseconds, in members such as `time_ns`.
    Nanos,
}

impl TimeForm {
    fn write(self, json: &mut JsonWriter, name: &str, time: Duration) {
        match self {
            Self::Millis => json.key(name).millis(time),
            Self::Nanos => json.key(&format!("{name}_ns")).number(nanos(time)),
        }
    }
}

/// Writes the members of the result of a TLS handshake.
pub(crate) fn write_tls(json: &mut JsonWriter, facts: &TlsFacts) {
    json.key("version").string(facts.version);
    json.key("cipher_suite").string(facts.cipher_suite);
    if let Some(alpn) = &facts.alpn {
        json.key("alpn").string(alpn);
    }
    json.key("resumed").boolean(facts.resumed);
    json.key("verified").boolean(facts.verified);
    json.key("encrypted_hello").boolean(facts.encrypted_hello);
}

/// Writes a part of the server's own account of its time.
pub(crate) fn write_part(json: &mut JsonWriter, part: &ServerTiming, form: TimeForm) {
    json.object(|json| {
        json.key("name").string(&part.name);
        if let Some(duration) = part.duration {
            form.write(json, "duration", duration);
        }
        if let Some(description) = &part.description {
            json.key("description").string(description);
        }
    });
}

/// Writes a reason why a call took its time.
pub(crate) fn write_reason(json: &mut JsonWriter, reason: &Reason, form: TimeForm) {
    json.object(|json| {
        json.key("cause").string(reason.cause.as_str());
        json.key("phase").string(reason.phase.as_str());
        form.write(json, "time", reason.time);
        json.key("share").decimal(reason.share);
        json.key("text").display(reason);
        if let Some(remedy) = reason.remedy {
            json.key("remedy").string(remedy);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_time_has_its_unit_if_it_is_not_milliseconds() {
        let part = ServerTiming { name: "db".into(), duration: Some(Duration::from_micros(12_500)), description: None };
        let text = |form| {
            let mut json = JsonWriter::new();
            write_part(&mut json, &part, form);
            json.finish()
        };
        assert_eq!(text(TimeForm::Millis), r#"{"name":"db","duration":12.5}"#);
        assert_eq!(text(TimeForm::Nanos), r#"{"name":"db","duration_ns":12500000}"#);
    }
}
