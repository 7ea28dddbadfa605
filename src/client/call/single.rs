//! A call that is only one attempt of another call: the one inside of the layers around each attempt.
//!
//! It does not resend. It fails with its error, which the layers see, and leaves the resend to the call around the layers.

use crate::client::body::Loan;
use crate::client::policy::resend::Resend;
use crate::pool::EarlierConn;

/// The state that a single attempt gets from the call around the layers, and leaves to it.
pub(in crate::client::call) struct SingleAttempt {
    /// The connection on which the last attempt failed.
    pub(in crate::client::call) failed_on: Option<EarlierConn>,
    /// The resend that may follow.
    pub(in crate::client::call) resend: Option<Resend>,
    /// The call's stream, if that is its body.
    pub(in crate::client::call) loan: Option<Loan>,
}

impl SingleAttempt {
    /// Returns true if the call around the layers has its body still, whatever the layers made of it.
    pub(in crate::client::call) fn body_is_replayable(&self) -> bool {
        self.loan.as_ref().is_none_or(Loan::is_unread)
    }
}
