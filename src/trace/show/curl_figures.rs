//! curl's figures, made of the milestones of a call's last request.

use std::time::Duration;

use crate::clock::Instant;
use crate::trace::timings::Timings;
use crate::trace::timings::hops::HopEnd;

/// curl's figures. Each is the time from the call's start until the last request reached a milestone, or zero if it has not.
/// So each includes the call's earlier requests, and the backoffs between them.
impl Timings {
    /// Returns the time until the call got a connection, or until its own connection began to be opened (curl).
    pub fn time_queue(&self) -> Duration {
        self.since_start(self.milestones().dial_started.or(self.milestones().leased))
    }

    /// Returns the time until the name was resolved and the first address was dialled (curl). On a reused connection, until
    /// the call got it.
    pub fn time_namelookup(&self) -> Duration {
        self.since_start(self.milestones().resolved.or(self.milestones().leased))
    }

    /// Returns the time until an address of the host, or of its proxy, was connected (curl). On a reused connection, until
    /// the call got it.
    pub fn time_connect(&self) -> Duration {
        self.since_start(self.milestones().connected.or(self.milestones().leased))
    }

    /// Returns the time until the TLS handshake was done (curl). Zero without TLS, and on a reused connection.
    pub fn time_appconnect(&self) -> Duration {
        self.since_start(self.milestones().secured)
    }

    /// Returns the time until the call had its connection and the request was about to be sent (curl).
    pub fn time_pretransfer(&self) -> Duration {
        self.since_start(self.milestones().leased)
    }

    /// Returns the time until the first byte of the response came (curl).
    pub fn time_starttransfer(&self) -> Duration {
        self.since_start(self.milestones().answered)
    }

    /// Returns the time until the last redirect was followed (curl). Zero without any.
    pub fn time_redirect(&self) -> Duration {
        let redirect = self.hops().iter().rev().find(|hop| matches!(hop.end, HopEnd::Redirected(_)));
        redirect.map_or(Duration::ZERO, |hop| hop.started + hop.elapsed)
    }

    fn since_start(&self, milestone: Option<Instant>) -> Duration {
        milestone.map_or(Duration::ZERO, |at| at - self.start)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::StatusCode;

    use crate::origin::Origin;
    use crate::trace::events::event::{Event, RequestInfo};
    use crate::trace::events::lookup::Family;
    use crate::trace::timings::samples::{SENT, address, dns_start, folded, leased, ms, retried_call};

    fn origin(url: &str) -> Origin {
        Origin::from_url(&url::Url::parse(url).unwrap()).unwrap()
    }

    #[test]
    fn curls_figures_are_those_of_the_last_request_counted_from_the_calls_start() {
        let redirected = |method| Event::Redirected {
            status: StatusCode::FOUND,
            to: Arc::new(RequestInfo {
                method,
                origin: origin("http://b.test/"),
                target: http::Uri::from_static("/"),
                extensions: http::Extensions::new(),
            }),
        };
        let origin = origin("http://a.test/");
        let timings = folded(&[
            (0, leased(3)),
            (1, SENT),
            (9, Event::FirstByte),
            (10, redirected(http::Method::GET)),
            (12, Event::DialStart { origin, host: Default::default() }),
            (12, dns_start(Family::V4)),
            (20, Event::AttemptStart { address: address() }),
            (30, Event::AttemptEnd { address: address(), error: None }),
            (50, Event::Opened { remote: Some(address()) }),
            (51, leased(0)),
            (52, SENT),
            (80, Event::FirstByte),
            (90, Event::BodyEnd { bytes: 7 }),
        ]);
        let figures = [
            timings.time_redirect(),
            timings.time_queue(),
            timings.time_namelookup(),
            timings.time_connect(),
            timings.time_appconnect(),
            timings.time_pretransfer(),
            timings.time_starttransfer(),
            timings.total(),
        ];
        assert_eq!(figures.map(|figure| figure.as_millis()), [10, 12, 20, 30, 0, 51, 80, 90]);
        assert_eq!(timings.received_bytes(), 7);
        let retried = retried_call();
        let until_leased = [retried.time_queue(), retried.time_namelookup(), retried.time_connect()];
        assert_eq!(until_leased, [ms(90); 3], "the backoffs are before the last request");
        assert_eq!((retried.time_pretransfer(), retried.time_starttransfer()), (ms(90), ms(95)));
        assert_eq!(retried.backoff() + retried.queue() + ms(10), retried.time_pretransfer(), "two attempts of 5 ms");
        let warm = folded(&[(2, leased(1)), (3, SENT), (9, Event::FirstByte)]);
        let figures = [warm.time_namelookup(), warm.time_connect(), warm.time_appconnect(), warm.time_pretransfer()];
        assert_eq!(figures.map(|figure| figure.as_millis()), [2, 2, 0, 2]);
    }
}
