use std::collections::HashMap;

use super::super::record::Param;
use super::*;

const BOTH: Abilities = Abilities { protocols: &[b"h2", b"http/1.1"], uses_ech: false };
const HTTP1: Abilities = Abilities { protocols: &[b"http/1.1"], uses_ech: false };

/// The records of a world, by name.
type Zone<'a> = &'a [(&'a str, Vec<HttpsRecord>)];

/// Resolves an origin in a zone. Returns the endpoints as text, and the names that were asked for.
fn resolved(host: &str, port: u16, abilities: Abilities, zone: Zone<'_>) -> (Vec<String>, Vec<String>) {
    let zone: HashMap<&str, &Vec<HttpsRecord>> = zone.iter().map(|(name, records)| (*name, records)).collect();
    let mut rng = fastrand::Rng::with_seed(7);
    let mut resolution = Resolution::new(&host.into(), port, abilities);
    let mut asked = Vec::new();
    loop {
        let name = resolution.name().to_string();
        asked.push(name.clone());
        let records = zone.get(name.trim_end_matches('.')).map(|records| records.as_slice()).unwrap_or_default();
        match resolution.step(records, &mut rng) {
            Step::Ask(next) => assert_eq!(next, *resolution.name()),
            Step::Done(endpoints) => {
                let shown = |endpoint: &Endpoint| format!("{} {}:{}", endpoint.priority, endpoint.host, endpoint.port);
                return (endpoints.iter().map(shown).collect(), asked);
            }
        }
    }
}

fn endpoints(zone: Zone<'_>) -> Vec<String> {
    resolved("api.test", 443, BOTH, zone).0
}

fn service(priority: u16, target: &str) -> HttpsRecord {
    HttpsRecord::service(priority, target)
}

fn unknown_mandatory(priority: u16) -> HttpsRecord {
    let params = [(0, Param::Mandatory(vec![77])), (77, Param::Unknown)];
    HttpsRecord::from_params(priority, "x.test", params).unwrap()
}

#[test]
fn the_endpoints_of_a_name() {
    let h3 = |priority| service(priority, "h3.test").with_alpn(["h3"]).without_default_alpn();
    let cases: [(&str, Vec<HttpsRecord>, &[&str]); 14] = [
        ("absent", vec![], &[]),
        ("the name itself", vec![service(1, ".")], &["1 api.test:443"]),
        ("the name itself, written out", vec![service(1, "API.test.")], &["1 api.test:443"]),
        ("a target", vec![service(1, "svc.test")], &["1 svc.test.:443"]),
        ("upper case", vec![service(1, "SVC.Test")], &["1 svc.test.:443"]),
        ("a port", vec![service(1, ".").with_port(8443)], &["1 api.test:8443"]),
        ("port 0", vec![service(1, ".").with_port(0)], &[]),
        ("two priorities", vec![service(2, "b.test"), service(1, "a.test")], &["1 a.test.:443", "2 b.test.:443"]),
        ("an unknown mandatory key", vec![unknown_mandatory(1), service(2, "b.test")], &["2 b.test.:443"]),
        ("only an unknown mandatory key", vec![unknown_mandatory(1)], &[]),
        ("an unknown protocol first", vec![h3(1), service(2, ".")], &["2 api.test:443"]),
        ("only an unknown protocol", vec![h3(1)], &[]),
        ("HTTP/3 and the default", vec![service(1, ".").with_alpn(["h3"])], &["1 api.test:443"]),
        ("no protocol", vec![service(1, ".").without_default_alpn()], &[]),
    ];
    for (what, records, expected) in cases {
        assert_eq!(endpoints(&[("api.test", records)]), expected, "{what}");
    }
}

#[test]
fn an_endpoint_that_speaks_only_http2_is_for_clients_that_do() {
    let zone = [("api.test", vec![service(1, ".").with_alpn(["h2"]).without_default_alpn()])];
    assert_eq!(resolved("api.test", 443, BOTH, &zone).0, ["1 api.test:443"]);
    assert!(resolved("api.test", 443, HTTP1, &zone).0.is_empty());
}

#[test]
fn a_port_other_than_443_is_part_of_the_name() {
    let zone = [("_8443._https.api.test", vec![service(1, "svc.test"), service(2, "b.test").with_port(9)])];
    let (found, asked) = resolved("api.test", 8443, BOTH, &zone);
    assert_eq!(asked, ["_8443._https.api.test"]);
    assert_eq!(found, ["1 svc.test.:8443", "2 b.test.:9"], "the origin's port unless the record has one");
}

#[test]
fn aliases_are_followed_to_the_records_at_their_end() {
    let zone = [
        ("api.test", vec![HttpsRecord::alias("one.test")]),
        ("one.test", vec![HttpsRecord::alias("two.test")]),
        ("two.test", vec![service(1, ".").with_port(8443)]),
    ];
    let (found, asked) = resolved("api.test", 443, BOTH, &zone);
    assert_eq!(asked, ["api.test", "one.test.", "two.test."]);
    assert_eq!(found, ["1 two.test.:8443", "0 two.test.:443"], "then the end of the chain itself");
}

#[test]
fn an_alias_to_a_name_without_records_leads_to_its_addresses() {
    assert_eq!(endpoints(&[("api.test", vec![HttpsRecord::alias("pool.test")])]), ["0 pool.test.:443"]);
    let (found, _) =
        resolved("api.test", 8443, BOTH, &[("_8443._https.api.test", vec![HttpsRecord::alias("pool.test")])]);
    assert_eq!(found, ["0 pool.test.:8443"]);
}

#[test]
fn an_alias_outweighs_the_records_beside_it() {
    assert_eq!(endpoints(&[("api.test", vec![service(1, "b.test"), HttpsRecord::alias("a.test")])]), ["0 a.test.:443"]);
}

#[test]
fn loops_and_long_chains_say_nothing() {
    assert!(endpoints(&[("api.test", vec![HttpsRecord::alias("api.test")])]).is_empty(), "a loop of one");
    let two = [("api.test", vec![HttpsRecord::alias("b.test")]), ("b.test", vec![HttpsRecord::alias("api.test")])];
    assert!(endpoints(&two).is_empty(), "a loop of two");
    let names: Vec<String> = (0..=MAX_ALIASES + 1).map(|number| format!("n{number}.test")).collect();
    let chain: Vec<_> = names.windows(2).map(|pair| (pair[0].as_str(), vec![HttpsRecord::alias(&pair[1])])).collect();
    let (found, asked) = resolved("n0.test", 443, BOTH, &chain);
    assert_eq!((found.len(), asked.len()), (0, MAX_ALIASES + 1), "a chain of {} aliases", MAX_ALIASES + 1);
    let (found, _) = resolved("n0.test", 443, BOTH, &chain[..MAX_ALIASES]);
    assert_eq!(found.len(), 1, "a chain of {MAX_ALIASES} aliases");
}

#[test]
fn an_alias_to_the_root_says_nothing() {
    assert!(endpoints(&[("api.test", vec![HttpsRecord::alias(".")])]).is_empty());
}

#[test]
fn records_of_the_same_priority_take_turns_and_only_a_few_are_tried() {
    let records: Vec<_> = (0..9).map(|number| service(1, &format!("s{number}.test"))).collect();
    let mut firsts = std::collections::HashSet::new();
    for seed in 0..100 {
        let mut resolution = Resolution::new(&"api.test".into(), 443, BOTH);
        let Step::Done(found) = resolution.step(&records, &mut fastrand::Rng::with_seed(seed)) else { panic!() };
        assert_eq!(found.len(), MAX_ENDPOINTS);
        firsts.insert(found[0].host.clone());
    }
    assert_eq!(firsts.len(), 9);
}
