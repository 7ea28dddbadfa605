//! The questions about candidates that are under way, so that two lookups of a name do not ask the same one.

use std::sync::Mutex;

use hickory_resolver::proto::rr::Name;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::dns::Family;
use crate::sync::lock;

/// The questions that are under way.
#[derive(Debug, Default)]
pub(in crate::dns::hickory) struct QuestionsInFlight {
    questions: Mutex<Vec<(Name, Family)>>,
    ended: Notify,
}

/// A question that is under way. Dropped, it has ended.
pub(in crate::dns::hickory) struct QuestionInFlight<'a> {
    all: &'a QuestionsInFlight,
    name: &'a Name,
    family: Family,
}

impl QuestionsInFlight {
    /// Adds a question until the returned guard is dropped.
    pub(in crate::dns::hickory) fn begin<'a>(&'a self, name: &'a Name, family: Family) -> QuestionInFlight<'a> {
        lock(&self.questions).push((name.clone(), family));
        QuestionInFlight { all: self, name, family }
    }

    /// Returns true if this question is under way.
    pub(in crate::dns::hickory) fn contains(&self, name: &Name, family: Family) -> bool {
        lock(&self.questions).iter().any(|question| is_same(question, name, family))
    }

    /// Waits until a question ends, whichever it is. A question that ends after this call counts, even before the first poll.
    pub(in crate::dns::hickory) fn ended(&self) -> Notified<'_> {
        self.ended.notified()
    }
}

impl Drop for QuestionInFlight<'_> {
    fn drop(&mut self) {
        let mut questions = lock(&self.all.questions);
        if let Some(index) = questions.iter().position(|question| is_same(question, self.name, self.family)) {
            questions.swap_remove(index);
        }
        drop(questions);
        self.all.ended.notify_waiters();
    }
}

fn is_same((name, family): &(Name, Family), other: &Name, other_family: Family) -> bool {
    name == other && *family == other_family
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use Family::{V4, V6};

    #[test]
    fn a_question_is_in_flight_until_its_guard_is_dropped() {
        let (all, name) = (QuestionsInFlight::default(), Name::from_ascii("db.test.").unwrap());
        let questions = [all.begin(&name, V4), all.begin(&name, V4)];
        assert!(all.contains(&Name::from_ascii("DB.test.").unwrap(), V4) && !all.contains(&name, V6));
        let ended = all.ended();
        let [first, second] = questions;
        drop(first);
        assert!(all.contains(&name, V4), "the same question is asked once more");
        assert_eq!(ended.now_or_never(), Some(()));
        let ended = all.ended();
        assert_eq!(ended.now_or_never(), None);
        drop(second);
        assert!(!all.contains(&name, V4));
    }
}
