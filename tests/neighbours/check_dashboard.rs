//! Checks `docs/grafana.json` against measurements: each query is one of PromQL, and each of its metrics and labels is there.
//!
//! `cargo run --example prometheus | cargo run -p speeddial-neighbour-tests --example check_dashboard`

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::io::{Read, stdin};

use promql_parser::label::Labels;
use promql_parser::parser::{Expr, LabelModifier, VectorSelector, parse};
use serde_json::Value;

/// The labels of each metric.
type Measured = BTreeMap<String, BTreeSet<String>>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    stdin().read_to_string(&mut text)?;
    let measured = measured(&text);
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/grafana.json"))?)?;
    let mut queries = 0;
    for panel in dashboard["panels"].as_array().ok_or("the dashboard has no panels")? {
        let title = panel["title"].as_str().ok_or("a panel has no title")?;
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().ok_or_else(|| format!("{title}: a target has no query"))?;
            check(query, &measured).map_err(|error| format!("{title}: {query}: {error}"))?;
            queries += 1;
        }
    }
    if queries < 20 {
        return Err(format!("the dashboard has {queries} queries only").into());
    }
    println!("{queries} queries of the dashboard, over {} metrics", measured.len());
    Ok(())
}

/// Reads the text of Prometheus.
fn measured(text: &str) -> Measured {
    let mut measured = Measured::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (name, labels) = line.split_once('{').unwrap_or((line.split(' ').next().unwrap_or_default(), ""));
        let known = measured.entry(name.to_owned()).or_default();
        let names = labels.split(',').filter_map(|label| Some(label.split_once("=\"")?.0.trim().to_owned()));
        known.extend(names);
    }
    measured
}

/// Checks that a query can be parsed, and that there are its metrics and labels.
fn check(query: &str, measured: &Measured) -> Result<(), String> {
    let query = query.replace("$__rate_interval", "1m").replace("$server", ".*");
    let mut labels = BTreeSet::new();
    let mut metrics = Vec::new();
    walk(&parse(&query)?, &mut metrics, &mut labels);
    if metrics.is_empty() {
        return Err("the query has no metric".to_owned());
    }
    for selector in metrics {
        let name = selector.name.clone().ok_or("a selector has no name")?;
        let known = measured.get(&name).ok_or_else(|| format!("there is no metric {name}"))?;
        let matched = selector.matchers.matchers.iter().map(|matcher| &matcher.name);
        if let Some(label) = matched.chain(&labels).find(|label| !known.contains(*label)) {
            return Err(format!("{name} has no label {label}, but {known:?}"));
        }
    }
    Ok(())
}

/// Collects the metrics of an expression, and the labels that it groups by.
fn walk(expression: &Expr, metrics: &mut Vec<VectorSelector>, labels: &mut BTreeSet<String>) {
    match expression {
        Expr::Aggregate(aggregate) => {
            if let Some(LabelModifier::Include(Labels { labels: by })) = &aggregate.modifier {
                labels.extend(by.iter().cloned());
            }
            walk(&aggregate.expr, metrics, labels);
        }
        Expr::Binary(binary) => {
            walk(&binary.lhs, metrics, labels);
            walk(&binary.rhs, metrics, labels);
        }
        Expr::Call(call) => call.args.args.iter().for_each(|argument| walk(argument, metrics, labels)),
        Expr::Paren(paren) => walk(&paren.expr, metrics, labels),
        Expr::MatrixSelector(selector) => metrics.push(selector.vs.clone()),
        Expr::VectorSelector(selector) => metrics.push(selector.clone()),
        _ => {}
    }
}
