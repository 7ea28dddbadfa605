//! The questions about full names that are under way, and those of the last second with their outcomes. The searches for IPv4 and for IPv6
//! share them, so that both together ask each question once.

use std::sync::Mutex;
use std::time::Duration;

use hickory_resolver::proto::rr::Name;
use tokio::sync::watch;

use super::verdict::FamilyOutcome;
use crate::clock::{Instant, before, now};
use crate::dns::answer::Place;
use crate::dns::{Answer, Family, ResolveError, ResolveErrorKind};
use crate::memory::Bounded;
use crate::sync::lock;

/// The most questions that are remembered.
const MAX_QUESTIONS: usize = 1_024;
/// The longest time for which a question under way is waited for.
const LONGEST: Duration = Duration::from_secs(10);
/// The time for which an outcome is remembered. The lookups of both families begin together; no later search counts on it.
const REMEMBERED_FOR: Duration = Duration::from_secs(1);

/// The questions by full name and family, each with its outcome as soon as there is one.
#[derive(Debug)]
pub(in crate::dns::hickory) struct Questions(Mutex<Bounded<(Name, Family), Asked>>);

/// The end of a question that tells its outcome. It is closed when the question was given up.
type Asked = watch::Receiver<Option<QuestionOutcome>>;

/// The outcome of a question: addresses, or why there are none.
#[derive(Debug, Clone, Copy)]
pub(in crate::dns::hickory) struct QuestionOutcome {
    pub(in crate::dns::hickory) family: FamilyOutcome,
    pub(in crate::dns::hickory) negative_ttl: Option<Duration>,
    pub(in crate::dns::hickory) place: Place,
    until: Instant,
}

impl QuestionOutcome {
    /// Reads the result of a question. A failure of this machine, and addresses that are not to be kept, count for this moment alone.
    fn of(now: Instant, result: &Result<Answer, ResolveError>) -> Self {
        let (family, negative_ttl, place, lasts) = match result {
            Ok(answer) => (Ok(()), None, answer.place(), answer.ttl()),
            Err(error) => {
                let lasts = match error.kind() {
                    kind if kind.is_local() => Duration::ZERO,
                    kind if kind.is_negative() => error.negative_ttl().unwrap_or(REMEMBERED_FOR),
                    _ => REMEMBERED_FOR,
                };
                (Err(error.kind()), error.negative_ttl(), error.place(), lasts)
            }
        };
        Self { family, negative_ttl, place, until: now + lasts.min(REMEMBERED_FOR) }
    }

    /// Returns the kind of a negative answer.
    pub(in crate::dns::hickory) fn absence(&self) -> Option<ResolveErrorKind> {
        self.family.err().filter(|kind| kind.is_negative())
    }
}

impl Default for Questions {
    fn default() -> Self {
        Self(Mutex::new(Bounded::new(MAX_QUESTIONS, LONGEST)))
    }
}

impl Questions {
    /// Asks a question, which others can wait for meanwhile. With `waits_until`, it begins when the question about the other family has ended,
    /// if that is under way, and at this time at the latest.
    pub(in crate::dns::hickory) async fn ask(
        &self,
        (name, family): (&Name, Family),
        waits_until: Option<Instant>,
        asking: impl Future<Output = Result<Answer, ResolveError>>,
    ) -> Result<Answer, ResolveError> {
        let (told, asked) = watch::channel(None);
        let other = {
            let mut questions = lock(&self.0);
            let key = (name.clone(), family);
            // The first one is what others wait for.
            let is_pending = |asked: &Asked| asked.borrow().is_none() && asked.has_changed().is_ok();
            if !questions.get(now(), &key).is_some_and(is_pending) {
                questions.insert(now(), key, asked);
            }
            waits_until.and_then(|_| questions.get(now(), &(name.clone(), family.other())).cloned())
        };
        if let Some(mut other) = other {
            let ended = std::pin::pin!(other.wait_for(Option::is_some));
            drop(before(waits_until, ended).await);
        }
        let result = asking.await;
        told.send_replace(Some(QuestionOutcome::of(now(), &result)));
        result
    }

    /// Returns the outcome of a question of the last moment.
    pub(in crate::dns::hickory) fn recall(&self, now: Instant, name: &Name, family: Family) -> Option<QuestionOutcome> {
        let asked = lock(&self.0).get(now, &(name.clone(), family)).cloned()?;
        let outcome = *asked.borrow();
        outcome.filter(|outcome| now < outcome.until)
    }

    /// Returns the outcome of a question of the last moment, or of one that is under way and ends before `give_up`.
    pub(in crate::dns::hickory) async fn outcome(
        &self,
        name: &Name,
        family: Family,
        give_up: Instant,
    ) -> Option<QuestionOutcome> {
        let mut asked = lock(&self.0).get(now(), &(name.clone(), family)).cloned()?;
        let ended = before(Some(give_up), std::pin::pin!(asked.wait_for(Option::is_some))).await?;
        ended.ok().and_then(|outcome| *outcome).filter(|outcome| now() <= outcome.until)
    }

    #[cfg(test)]
    pub(super) fn forget(&self) {
        *lock(&self.0) = Bounded::new(MAX_QUESTIONS, LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;
    use crate::dns::Source;
    use Family::{V4, V6};
    use ResolveErrorKind::{Local, NoData, NxDomain, ServFail};

    fn name(text: &str) -> Name {
        Name::from_str_relaxed(text).unwrap()
    }

    const PLACE: Place = Place { server: 1, candidate: 2 };

    fn answer(ttl: Duration) -> Result<Answer, ResolveError> {
        Ok(Answer::new([[192, 0, 2, 1].into()], ttl, Source::Miss).with_place(PLACE))
    }

    fn error(kind: ResolveErrorKind, ttl: Option<u64>) -> Result<Answer, ResolveError> {
        let ttl = ttl.map(Duration::from_secs);
        Err(ResolveError::new(kind, "n", V4).with_negative_ttl(ttl).with_place(PLACE))
    }

    #[tokio::test(start_paused = true)]
    async fn an_outcome_is_remembered_for_a_second_with_its_place() {
        let ms = Duration::from_millis;
        let cases = [
            (answer(ms(5_000)), Ok(()), 1_000),
            (answer(ms(300)), Ok(()), 300),
            (answer(ms(0)), Ok(()), 0),
            (error(NoData, Some(5)), Err(NoData), 1_000),
            (error(NxDomain, Some(90)), Err(NxDomain), 1_000),
            (error(NxDomain, Some(0)), Err(NxDomain), 0),
            (error(NoData, None), Err(NoData), 1_000),
            (error(ServFail, None), Err(ServFail), 1_000),
            (error(Local, None), Err(Local), 0),
        ];
        for (result, recalled, lasts) in cases {
            let questions = Questions::default();
            let told = questions.ask((&name("a.test."), V4), None, std::future::ready(result.clone())).await;
            assert_eq!(told.is_ok(), result.is_ok());
            let recall = |text: &str, family, after| {
                let known = questions.recall(now() + ms(after), &name(text), family);
                known.map(|outcome| (outcome.family, outcome.place))
            };
            assert_eq!(recall("A.test.", V4, 0), Some((recalled, PLACE)).filter(|_| lasts > 0), "{result:?}");
            assert_eq!(recall("a.test.", V4, lasts), None, "{result:?}");
            assert_eq!(recall("a.test.", V6, 0), None, "{result:?}");
            let absence = questions.recall(now(), &name("a.test."), V4).and_then(|outcome| outcome.absence());
            assert_eq!(absence, recalled.err().filter(|kind| kind.is_negative() && lasts > 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_under_way_is_waited_for_until_it_ends_is_given_up_or_takes_too_long() {
        let (questions, asked) = (Questions::default(), name("db.test."));
        let give_up = || now() + Duration::from_millis(300);
        assert!(questions.outcome(&asked, V4, give_up()).await.is_none(), "nobody asks");
        let (end, ended) = tokio::sync::oneshot::channel();
        let mut asking = Box::pin(questions.ask((&asked, V4), None, async { ended.await.unwrap() }));
        assert!(poll!(asking.as_mut()).is_pending());
        let start = now();
        assert!(questions.outcome(&asked, V4, give_up()).await.is_none());
        assert_eq!(now() - start, Duration::from_millis(300));
        let mut waiting = Box::pin(questions.outcome(&asked, V4, give_up()));
        assert!(poll!(waiting.as_mut()).is_pending());
        end.send(error(NoData, Some(5))).unwrap();
        assert!(asking.await.is_err());
        assert_eq!(waiting.await.unwrap().absence(), Some(NoData));
        let mut given_up = Box::pin(questions.ask((&asked, V6), None, std::future::pending()));
        assert!(poll!(given_up.as_mut()).is_pending());
        let mut waiting = Box::pin(questions.outcome(&asked, V6, give_up()));
        assert!(poll!(waiting.as_mut()).is_pending());
        drop(given_up);
        let start = now();
        assert!(waiting.await.is_none());
        assert_eq!(now(), start, "at once");
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_questions_that_are_the_same_the_first_is_waited_for() {
        let (questions, asked) = (Questions::default(), name("db.test."));
        let ask = |takes: u64, kind| {
            let asking = async move {
                tokio::time::sleep(Duration::from_secs(takes)).await;
                error(kind, Some(5))
            };
            questions.ask((&asked, V4), None, asking)
        };
        let give_up = now() + Duration::from_secs(3);
        let (_, _, told) = tokio::join!(ask(1, NoData), ask(2, NxDomain), async {
            tokio::task::yield_now().await;
            questions.outcome(&asked, V4, give_up).await
        });
        assert_eq!(told.unwrap().absence(), Some(NoData));
    }

    #[tokio::test(start_paused = true)]
    async fn questions_about_a_name_take_turns_where_they_have_to() {
        let (questions, asked, start) = (Questions::default(), name("db.test."), now());
        let ask = async |family, takes_ms: u64| {
            let turn = now() + Duration::from_millis(300);
            let asking = async {
                let begun = now();
                tokio::time::sleep(Duration::from_millis(takes_ms)).await;
                Err(ResolveError::new(NoData, &(begun - start).as_millis().to_string(), family))
            };
            questions.ask((&asked, family), Some(turn), asking).await.unwrap_err().name().to_owned()
        };
        let begun = tokio::join!(ask(V4, 100), ask(V6, 0));
        assert_eq!((&*begun.0, &*begun.1), ("0", "100"));
        let questions_after = (now() - start).as_millis();
        // The other one takes too long, and is waited for no longer than 300 ms.
        let begun = tokio::join!(ask(V6, 1_000), ask(V4, 0));
        assert_eq!(begun.0, questions_after.to_string());
        assert_eq!(begun.1, (questions_after + 300).to_string());
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_is_bounded() {
        let questions = Questions::default();
        for number in 0..3 * MAX_QUESTIONS {
            let name = name(&format!("n{number}.test."));
            drop(questions.ask((&name, V4), None, std::future::ready(answer(Duration::from_secs(5)))).await);
            assert!(lock(&questions.0).len() <= MAX_QUESTIONS);
        }
    }
}
