//! The number of connections that a load needs, by the theory of queues. A core.

/// The share of requests that may wait for a connection. With it, the 99th percentile of the time of a request has no wait.
pub(super) const MAY_WAIT: f64 = 0.01;
/// The most by which one piece of advice multiplies a limit. The time for which requests hold connections may rise with the limit,
/// because the server has no more to give: smaller steps let the user see that.
pub(super) const BIGGEST_STEP: usize = 4;
/// The most connections that are ever computed.
const MOST: usize = 1_000_000;

/// Returns the mean number of requests that hold a connection: their rate per second times the mean time in seconds for which
/// one holds it (J. D. C. Little, "A Proof for the Queuing Formula: L = λW", 1961).
pub(super) fn concurrency(rate: f64, hold: f64) -> f64 {
    rate * hold
}

/// Returns the fewest connections with which at most one request in a hundred waits, for a mean of `load` requests at the same
/// time.
///
/// This is Erlang's formula C (A. K. Erlang, 1917): arrivals are random and independent (Poisson), holding times have any mean. For
/// large loads it is about `load + 2.4 * sqrt(load)` ("square-root staffing", S. Halfin and W. Whitt, 1981). It is exact for
/// exponential holding times, and close for others.
pub(super) fn fewest_connections(load: f64) -> usize {
    let mut blocked = 1.0; // Erlang's formula B for no connection
    for connections in 1..MOST {
        let servers = connections as f64;
        blocked = load * blocked / (servers + load * blocked);
        if servers > load && waiting_share(load, servers, blocked) <= MAY_WAIT {
            return connections;
        }
    }
    MOST
}

/// Returns the share of requests that wait, from the share that would be turned away if there were no queue.
fn waiting_share(load: f64, servers: f64, blocked: f64) -> f64 {
    servers * blocked / (servers - load * (1.0 - blocked))
}

/// Returns a maximum that was observed with a margin for longer times of observation: one standard deviation, if requests arrive
/// at random.
pub(super) fn with_margin(most: usize) -> usize {
    most + (most as f64).sqrt().ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn littles_law() {
        assert_eq!(concurrency(200.0, 0.1), 20.0);
    }

    /// Figures from published tables of Erlang C, computed here by the sum that defines it.
    fn by_definition(load: f64, servers: usize) -> f64 {
        let mut term = 1.0;
        let mut sum = 0.0;
        for number in 0..servers {
            sum += term;
            term *= load / (number + 1) as f64;
        }
        let waiting = term * servers as f64 / (servers as f64 - load);
        waiting / (sum + waiting)
    }

    #[test]
    fn the_fewest_connections_are_those_of_erlangs_formula() {
        assert!((by_definition(2.0, 3) - 0.4444).abs() < 1e-4, "2 Erlang, 3 servers: 44 % wait");
        for load in [0.01, 0.1, 0.5, 1.0, 2.0, 5.5, 16.0, 64.0, 100.0] {
            let connections = fewest_connections(load);
            assert!(by_definition(load, connections) <= MAY_WAIT, "{load}: {connections} are enough");
            if connections as f64 - 1.0 > load {
                assert!(by_definition(load, connections - 1) > MAY_WAIT, "{load}: fewer than {connections} are not");
            }
        }
        assert_eq!([0.0, 0.001, 1.0, 16.0].map(fewest_connections), [1, 1, 5, 27]);
    }

    #[test]
    fn large_loads_need_a_margin_of_about_the_square_root() {
        for load in [400.0_f64, 2_500.0, 40_000.0] {
            let margin = (fewest_connections(load) as f64 - load) / load.sqrt();
            assert!((1.8..2.6).contains(&margin), "{load}: {margin}");
        }
        assert_eq!(fewest_connections(1e9), MOST, "it ends");
    }

    #[test]
    fn an_observed_maximum_has_a_margin() {
        assert_eq!([0, 1, 16, 100].map(with_margin), [0, 2, 20, 110]);
    }
}
