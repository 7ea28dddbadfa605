//! Converts hickory's messages to HTTPS records of this crate.

use std::net::IpAddr;

use hickory_resolver::proto::op::Message;
use hickory_resolver::proto::rr::rdata::svcb::{SVCB, SvcParamKey, SvcParamValue};
use hickory_resolver::proto::rr::{Name, RData};

use super::records::{end_of_chain, negative_ttl, ttl};
use crate::dns::https::{HttpsAnswer, HttpsRecord, Malformed, Param};

/// Reads the HTTPS records of `owner`, or of the name at the end of its chain of aliases, with the smallest TTL of the chain.
/// Records of other names are left out. If one of the records is malformed, none of them counts (RFC 9460 §2.2).
pub(in crate::dns::hickory) fn https_answer(message: &Message, owner: &Name) -> HttpsAnswer {
    let (owner, mut smallest) = end_of_chain(&message.answers, owner);
    let mut records = Vec::new();
    for record in message.answers.iter().filter(|record| record.name == *owner) {
        if let RData::HTTPS(https) = &record.data {
            smallest = smallest.min(ttl(record.ttl));
            records.push(https_record(&https.0));
        }
    }
    if records.is_empty() {
        return HttpsAnswer::absent(negative_ttl(message));
    }
    match records.into_iter().collect::<Result<Vec<_>, Malformed>>() {
        Ok(records) => HttpsAnswer::new(records, smallest),
        Err(Malformed) => HttpsAnswer::absent(Some(smallest)),
    }
}

fn https_record(record: &SVCB) -> Result<HttpsRecord, Malformed> {
    let params = record.svc_params.iter().map(|(key, value)| (u16::from(*key), param(value)));
    HttpsRecord::from_params(record.svc_priority, &record.target_name.to_ascii(), params)
}

fn param(value: &SvcParamValue) -> Param {
    match value {
        SvcParamValue::Mandatory(keys) => Param::Mandatory(keys.0.iter().copied().map(SvcParamKey::into).collect()),
        SvcParamValue::Alpn(alpn) => Param::Alpn(alpn.0.iter().map(|protocol| protocol.as_bytes().into()).collect()),
        SvcParamValue::NoDefaultAlpn => Param::NoDefaultAlpn,
        SvcParamValue::Port(port) => Param::Port(*port),
        SvcParamValue::Ipv4Hint(hint) => Param::Hints(hint.0.iter().map(|ip| IpAddr::V4(ip.0)).collect()),
        SvcParamValue::Ipv6Hint(hint) => Param::Hints(hint.0.iter().map(|ip| IpAddr::V6(ip.0)).collect()),
        SvcParamValue::EchConfigList(configs) => Param::Ech(configs.0.clone()),
        _ => Param::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hickory_resolver::proto::op::OpCode;
    use hickory_resolver::proto::rr::Record;
    use hickory_resolver::proto::rr::rdata::svcb::{Alpn, EchConfigList, IpHint, Mandatory, Unknown};
    use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME, HTTPS};

    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn record(owner: &str, seconds: u32, params: Vec<(SvcParamKey, SvcParamValue)>) -> Record {
        let https = HTTPS(SVCB::new(1, name("Svc.Test."), params));
        Record::from_rdata(name(owner), seconds, RData::HTTPS(https))
    }

    fn answered(records: Vec<Record>) -> HttpsAnswer {
        let mut message = Message::response(1, OpCode::Query);
        message.answers = records;
        https_answer(&message, &name("api.test."))
    }

    #[test]
    fn all_parameters_are_read() {
        let answer = answered(vec![record(
            "API.test.",
            60,
            vec![
                (SvcParamKey::Mandatory, SvcParamValue::Mandatory(Mandatory(vec![SvcParamKey::Alpn]))),
                (SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(vec!["h2".to_owned()]))),
                (SvcParamKey::NoDefaultAlpn, SvcParamValue::NoDefaultAlpn),
                (SvcParamKey::Port, SvcParamValue::Port(8443)),
                (SvcParamKey::Ipv4Hint, SvcParamValue::Ipv4Hint(IpHint(vec![A([192, 0, 2, 1].into())]))),
                (SvcParamKey::EchConfigList, SvcParamValue::EchConfigList(EchConfigList(vec![1, 2]))),
                (SvcParamKey::Ipv6Hint, SvcParamValue::Ipv6Hint(IpHint(vec![AAAA("::1".parse().unwrap())]))),
                (SvcParamKey::Unknown(77), SvcParamValue::Unknown(Unknown(vec![1]))),
            ],
        )]);
        let expected = HttpsRecord::service(1, "svc.test").with_alpn(["h2"]).without_default_alpn().with_port(8443);
        let expected = expected.with_hints(["192.0.2.1".parse().unwrap(), "::1".parse().unwrap()]);
        let record = &answer.records()[0];
        assert_eq!((record.target(), record.hints()), (expected.target(), expected.hints()));
        assert_eq!((record.port(), record.ech().map(|ech| ech.to_vec())), (Some(8443), Some(vec![1, 2])));
        assert_eq!(record.alpn().collect::<Vec<_>>(), [b"h2"]);
        assert_eq!(answer.ttl(), Some(Duration::from_secs(60)));
    }

    #[test]
    fn records_of_other_names_are_left_out_and_aliases_of_dns_followed() {
        assert!(answered(vec![record("other.test.", 60, vec![])]).records().is_empty());
        let alias = Record::from_rdata(name("api.test."), 5, RData::CNAME(CNAME(name("real.test."))));
        let answer = answered(vec![record("real.test.", 60, vec![]), alias]);
        assert_eq!((answer.records().len(), answer.ttl()), (1, Some(Duration::from_secs(5))));
    }

    #[test]
    fn one_malformed_record_spoils_all() {
        let bad = record("api.test.", 5, vec![(SvcParamKey::Ipv4Hint, SvcParamValue::Ipv4Hint(IpHint(vec![])))]);
        let answer = answered(vec![record("api.test.", 60, vec![]), bad]);
        assert_eq!((answer.records().len(), answer.ttl()), (0, Some(Duration::from_secs(5))));
    }
}
