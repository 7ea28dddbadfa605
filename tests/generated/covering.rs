//! Covering arrays: few rows in which every combination of the values of any few factors occurs.
//!
//! No crate for them is kept up, so this is a greedy generator: each row begins with a combination that is not covered yet, and takes
//! for each other factor the value that covers most. proptest, which shrinks one value, would leave it to chance which pairs meet.

use std::collections::HashSet;

/// A row: a value for each factor.
pub(crate) type Row = Vec<usize>;

/// Values of some factors: the factor and its value, by factor.
type Combination = Vec<(usize, usize)>;

/// The number of rows of which the best one is taken.
const CANDIDATES: usize = 8;
/// The number of attempts to complete a combination to a row that makes sense.
const ATTEMPTS: usize = 40;

/// Returns rows in which every combination of values of `strength` factors occurs, if there is a row for it that `makes_sense`. `sizes` are
/// the numbers of values of the factors.
pub(crate) fn rows(sizes: &[usize], strength: usize, seed: u64, makes_sense: impl Fn(&Row) -> bool) -> Vec<Row> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut open: Vec<Combination> = combinations(sizes, strength);
    random.shuffle(&mut open);
    let mut uncovered: HashSet<Combination> = open.iter().cloned().collect();
    let mut rows = Vec::new();
    while let Some(first) = open.pop() {
        if !uncovered.contains(&first) {
            continue;
        }
        let candidates = (0..ATTEMPTS).map(|_| complete(&first, sizes, &mut random)).filter(|row| makes_sense(row));
        let gain = |row: &Row| parts(row, strength).filter(|part| uncovered.contains(part)).count();
        let best = candidates.take(CANDIDATES).max_by_key(gain);
        uncovered.remove(&first);
        if let Some(row) = best {
            uncovered.retain(|open| open.iter().any(|(factor, value)| row[*factor] != *value));
            rows.push(row);
        }
    }
    rows
}

fn complete(first: &Combination, sizes: &[usize], random: &mut fastrand::Rng) -> Row {
    let mut row: Row = sizes.iter().map(|size| random.usize(..*size)).collect();
    first.iter().for_each(|(factor, value)| row[*factor] = *value);
    row
}

/// Returns the values of each choice of `strength` factors of a row.
fn parts(row: &Row, strength: usize) -> impl Iterator<Item = Combination> {
    choices(row.len(), strength)
        .into_iter()
        .map(|factors| factors.into_iter().map(|factor| (factor, row[factor])).collect())
}

/// Returns every combination of values of `strength` factors.
fn combinations(sizes: &[usize], strength: usize) -> Vec<Combination> {
    let mut all = Vec::new();
    for factors in choices(sizes.len(), strength) {
        let mut some = vec![Combination::new()];
        for factor in factors {
            let values = 0..sizes[factor];
            let with = |part: &Combination, value| part.iter().copied().chain([(factor, value)]).collect();
            some = some.iter().flat_map(|part| values.clone().map(move |value| with(part, value))).collect();
        }
        all.extend(some);
    }
    all
}

/// Returns every choice of `strength` factors out of `count`.
fn choices(count: usize, strength: usize) -> Vec<Vec<usize>> {
    let masks = (0_u32..1 << count).filter(|mask| mask.count_ones() as usize == strength);
    masks.map(|mask| (0..count).filter(|factor| mask & (1 << factor) != 0).collect()).collect()
}

#[test]
fn every_combination_that_makes_sense_is_covered_by_few_rows() {
    let sizes = [4, 3, 5, 2, 3];
    let makes_sense = |row: &Row| !(row[0] == 1 && row[2] == 4);
    let rows = rows(&sizes, 2, 7, makes_sense);
    let missing =
        |part: &Combination| !rows.iter().any(|row| part.iter().all(|(factor, value)| row[*factor] == *value));
    let missing: Vec<_> = combinations(&sizes, 2).into_iter().filter(missing).collect();
    assert_eq!(missing, [vec![(0, 1), (2, 4)]]);
    assert!(rows.iter().all(makes_sense) && (20..=30).contains(&rows.len()), "{} rows", rows.len());
}
