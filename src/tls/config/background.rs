//! A background thread: one for the process, which ends when no work is left.

use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};
use std::thread;

use parking_lot::Mutex;

/// Work for the thread.
pub(in crate::tls) type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs one after the other, in their order. Nothing may depend on a job: if it panics or no thread can be
/// started, it is dropped.
pub(in crate::tls) struct Background {
    queue: Mutex<TaskQueue>,
}

struct TaskQueue {
    waiting: VecDeque<Job>,
    /// True from the start of a thread until the thread has found the queue empty.
    has_thread: bool,
}

impl Background {
    pub(in crate::tls) const fn new() -> Self {
        Self { queue: Mutex::new(TaskQueue { waiting: VecDeque::new(), has_thread: false }) }
    }

    /// Runs `job` after the earlier ones. Returns at once.
    pub(in crate::tls) fn run(&'static self, job: Job) {
        let mut queue = self.queue.lock();
        queue.waiting.push_back(job);
        if queue.has_thread {
            return;
        }
        queue.has_thread = true;
        drop(queue);
        let started = thread::Builder::new().name("speeddial-tls".to_owned()).spawn(move || self.work());
        if started.is_err() {
            self.give_up();
        }
    }

    /// Runs jobs until none is left.
    fn work(&self) {
        while let Some(job) = self.next() {
            // The panic hook has reported the panic. The other jobs still run.
            let _ = panic::catch_unwind(AssertUnwindSafe(job));
        }
    }

    /// Takes the next job; `None` ends the thread.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        let job = queue.waiting.pop_front();
        queue.has_thread = job.is_some();
        job
    }

    /// Drops all jobs, because no thread can be started for them.
    fn give_up(&self) {
        let mut queue = self.queue.lock();
        queue.has_thread = false;
        let dropped = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn background() -> &'static Background {
        Box::leak(Box::new(Background::new()))
    }

    #[test]
    fn jobs_run_in_order_on_one_thread_and_run_returns_at_once() {
        let background = background();
        let (open, gate) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        background.run(Box::new(move || {
            let _ = gate.recv();
        }));
        for number in 1..=3 {
            let tell = tell.clone();
            background.run(Box::new(move || tell.send((number, thread::current().id())).unwrap()));
        }
        assert!(told.try_recv().is_err(), "the first job waits, and the others wait for it");
        drop((tell, open));
        let (numbers, threads): (Vec<_>, Vec<_>) = told.iter().unzip();
        assert_eq!(numbers, [1, 2, 3]);
        assert!(threads.iter().all(|id| *id == threads[0] && *id != thread::current().id()));
    }

    #[test]
    fn the_thread_ends_when_no_job_is_left_and_a_later_job_starts_another() {
        let background = background();
        let mut threads = Vec::new();
        for _ in 0..2 {
            let (tell, told) = mpsc::channel();
            background.run(Box::new(move || tell.send(thread::current().id()).unwrap()));
            threads.push(told.recv().unwrap());
            while background.queue.lock().has_thread {
                thread::yield_now();
            }
        }
        assert_ne!(threads[0], threads[1]);
    }

    #[test]
    fn a_job_that_panics_does_not_stop_the_others() {
        let background = background();
        let (tell, told) = mpsc::channel();
        background.run(Box::new(|| panic::resume_unwind(Box::new(()))));
        background.run(Box::new(move || tell.send(()).unwrap()));
        told.recv().unwrap();
    }
}
