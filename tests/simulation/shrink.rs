//! Makes a world smaller for as long as a rule stays broken in it.

use std::sync::Arc;

use crate::plan::Plan;
use crate::run;
use crate::servers::tls::Certificates;

/// Returns a world with fewer faults, calls and clients, in which the rule is broken too.
pub(crate) fn shrink(plan: Plan, rule: &str, tls: &Arc<Certificates>) -> Plan {
    let breaks = |plan: &Plan| run(plan.clone(), tls).broken.iter().any(|broken| broken.rule == rule);
    let mut smallest = plan;
    loop {
        let before = (smallest.faults.len(), smallest.traffic.len());
        for at in (0..smallest.faults.len()).rev() {
            let mut smaller = smallest.clone();
            smaller.faults.remove(at);
            if breaks(&smaller) {
                smallest = smaller;
            }
        }
        for at in (0..smallest.traffic.len()).rev() {
            let mut smaller = smallest.clone();
            smaller.traffic.remove(at);
            if breaks(&smaller) {
                smallest = smaller;
            }
        }
        if (smallest.faults.len(), smallest.traffic.len()) == before {
            return smallest;
        }
    }
}
