//! Timeouts name the phase that took most of the time, and the one in which it ran out where that is another one.

use super::common::{Act, URL, ms, over, server};
use support::fake_net::{FakeNet, Host};
use support::v4;

#[tokio::test(start_paused = true)]
async fn a_timeout_names_the_phase_that_took_most_of_the_time() {
    let client = over(server(|_| Act::ok(20_000))).timeout(ms(210)).build().unwrap();
    let error = client.get(URL).send().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "GET http://api.test/: timed out after 210 ms, in phase wait: 200 ms of 210 ms were spent waiting for an answer that had \
         not come (210 ms = dns 0 (fixed) + connect 10.0 ms + wait 200 ms, new 192.0.2.1:80)"
    );
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_ran_out_in_another_phase_names_that_as_well() {
    let net = FakeNet::new([(v4(1), Host::Serves { connect: 300, think: 100, body: 0 })]);
    let client = over(net).timeout(ms(350)).build().unwrap();
    let error = client.get(URL).send().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "GET http://api.test/: timed out after 350 ms, most of the time in phase connect, at last in phase wait: the connection to \
         192.0.2.1:80 took 300 ms of 350 ms (350 ms = dns 0 (fixed) + connect 300 ms + wait 50.0 ms, new 192.0.2.1:80)"
    );
}
