//! An observer that keeps what it sees.

use std::sync::{Arc, Mutex};

use speeddial::trace::{Event, Observer, Record, Subject};

/// Keeps every record. Clones share them.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<Vec<Record>>>);

impl Observer for Recorder {
    fn observe(&self, record: &Record) {
        self.0.lock().unwrap().push(record.clone());
    }
}

impl Recorder {
    /// What `take` makes of the events it wants.
    pub fn pick<T>(&self, take: impl Fn(&Event) -> Option<T>) -> Vec<T> {
        self.0.lock().unwrap().iter().filter_map(|record| take(&record.event)).collect()
    }

    /// How many events are as `wanted`.
    pub fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|record| wanted(&record.event)).count()
    }

    /// Whether the records of each subject were told in the order of their times.
    pub fn is_in_order(&self) -> bool {
        let records = self.0.lock().unwrap();
        let mut last = std::collections::HashMap::new();
        records.iter().all(|record| {
            let before = last.insert(format!("{:?}", record.subject), record.at);
            before.is_none_or(|before| before <= record.at)
        })
    }

    /// What happened, as `subject event` in the order it was told, with its milliseconds since the first event.
    pub fn timeline(&self) -> Vec<String> {
        let records = self.0.lock().unwrap();
        let Some(start) = records.first().map(|record| record.at) else { return Vec::new() };
        let line = |record: &Record| {
            let subject = match record.subject {
                Subject::Call(number) => format!("call {number}"),
                Subject::Connection(_) => "dial".to_owned(),
                _ => "other".to_owned(),
            };
            let event = format!("{:?}", record.event);
            let name = event.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
            format!("{} {subject} {name}", (record.at - start).as_millis())
        };
        records.iter().map(line).collect()
    }
}
