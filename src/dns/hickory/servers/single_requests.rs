//! One question about a name at a time, for servers that lose the second one (`single-request` in resolv.conf).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use hickory_resolver::proto::rr::Name;
use tokio::sync::Semaphore;

use crate::sync::lock;

/// The names that are being asked for. The questions about one name take turns.
#[derive(Default)]
pub(in crate::dns::hickory) struct SingleRequests(Mutex<HashMap<Name, Weak<Semaphore>>>);

impl SingleRequests {
    /// Returns the semaphore that the questions about a name have to acquire.
    pub(in crate::dns::hickory) fn turn_of(&self, name: &Name) -> Arc<Semaphore> {
        let mut turns = lock(&self.0);
        turns.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = turns.get(name).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::new(Semaphore::new(1));
        turns.insert(name.clone(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_questions_about_one_name_take_turns() {
        let requests = SingleRequests::default();
        let [one, other] = ["a.test.", "b.test."].map(|name| Name::from_ascii(name).unwrap());
        let first = requests.turn_of(&one);
        let second = requests.turn_of(&one);
        let held = first.acquire().await.unwrap();
        assert!(second.try_acquire().is_err(), "the same name is being asked for");
        assert!(requests.turn_of(&other).try_acquire().is_ok(), "another name does not wait");
        drop(held);
        assert!(second.try_acquire().is_ok());
        drop((first, second));
        requests.turn_of(&other);
        assert_eq!(requests.0.lock().unwrap().len(), 1, "a name without questions is forgotten");
    }
}
