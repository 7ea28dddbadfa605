//! The tries of one question in the order in which they were started, to tell which servers did not answer. A core.

use std::net::IpAddr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::tries::TryMode;
use crate::trace::AskedServers;

/// The tries of one question that were started and did not end with a response: the server's index, and the mode.
#[derive(Debug, Default)]
pub(in crate::dns::hickory) struct StartedTries(SmallVec<[(usize, TryMode); 4]>);

impl StartedTries {
    pub(in crate::dns::hickory) fn push(&mut self, server: usize, mode: TryMode) {
        self.0.push((server, mode));
    }

    /// Leaves out a try that ended with a response that is no answer, such as SERVFAIL: its server is not silent.
    pub(in crate::dns::hickory) fn responded(&mut self, server: usize, mode: TryMode) {
        self.0.retain(|started| *started != (server, mode));
    }

    /// Returns the servers, if one did not answer before the try `answered` did; `None` stands for a question without an answer.
    /// `ip` returns the address of a server.
    pub(in crate::dns::hickory) fn asked(
        &self,
        answered: Option<(usize, TryMode)>,
        ip: impl Fn(usize) -> IpAddr,
    ) -> Option<Arc<AskedServers>> {
        let before = self.0.iter().take_while(|start| Some(**start) != answered);
        let mut silent: Vec<IpAddr> = Vec::new();
        for ip in before.map(|(server, _)| ip(*server)) {
            if !silent.contains(&ip) {
                silent.push(ip);
            }
        }
        if silent.is_empty() {
            return None;
        }
        Some(Arc::new(AskedServers { answered: answered.map(|(server, _)| ip(server)), silent, searched: 0 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(server: usize) -> IpAddr {
        IpAddr::from([192, 0, 2, server as u8])
    }

    #[test]
    fn servers_asked_before_the_one_that_answered_are_silent() {
        use TryMode::{NewConnection, Usual};
        let mut tries = StartedTries::default();
        tries.push(1, Usual);
        assert_eq!(tries.asked(Some((1, Usual)), ip), None);
        tries.push(2, Usual);
        tries.push(1, NewConnection);
        let asked = tries.asked(Some((2, Usual)), ip).unwrap();
        assert_eq!((asked.answered, &asked.silent[..]), (Some(ip(2)), &[ip(1)][..]));
        let late = tries.asked(Some((1, NewConnection)), ip).unwrap();
        assert_eq!((late.answered, &late.silent[..]), (Some(ip(1)), &[ip(1), ip(2)][..]));
        assert_eq!(tries.asked(None, ip).unwrap().answered, None);
        tries.responded(1, Usual);
        assert_eq!(tries.asked(Some((2, Usual)), ip), None, "a server that fails is not silent");
    }
}
