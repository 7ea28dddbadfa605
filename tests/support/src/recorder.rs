//! An observer that keeps every event.

use std::sync::{Arc, Mutex};

use speeddial::trace::{Event, Observer, Record, Subject};

/// The observer. Clones share their records.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<Vec<Record>>>);

impl Observer for Recorder {
    fn observe(&self, record: &Record) {
        self.0.lock().unwrap().push(record.clone());
    }
}

impl Recorder {
    /// Returns the results of `take` for the events for which there is one.
    pub fn pick<T>(&self, take: impl Fn(&Event) -> Option<T>) -> Vec<T> {
        self.0.lock().unwrap().iter().filter_map(|record| take(&record.event)).collect()
    }

    /// Returns the number of events for which `wanted` is true.
    pub fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|record| wanted(&record.event)).count()
    }

    /// Returns true if the records of each subject arrived in the order of their times.
    pub fn is_in_order(&self) -> bool {
        let records = self.0.lock().unwrap();
        let mut last = std::collections::HashMap::new();
        records.iter().all(|record| {
            let before = last.insert(format!("{:?}", record.subject), record.at);
            before.is_none_or(|before| before <= record.at)
        })
    }

    /// Returns the events as lines `milliseconds subject event`, in the order of arrival, with the time since the first event.
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
