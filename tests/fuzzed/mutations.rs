//! Changes of inputs, as a fuzzer makes them.

/// Returns one of the seeds after a few changes, each at a random place.
pub(crate) fn mutated(seeds: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = seeds[random.usize(..seeds.len())].clone();
    for _ in 0..random.usize(1..6) {
        change(&mut input, seeds, random);
    }
    input.truncate(4_096);
    input
}

/// Bytes that mean something in one of the formats.
const MEANINGFUL: &[u8] = b"\r\n\t\0 \\/?#@:;,.=&%\"'<>[]{}|-_0129azAZ\x1b\x7f\x80\xc3\xff";

fn change(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut fastrand::Rng) {
    let at = random.usize(..=input.len());
    let part = part_of(input, random);
    match random.u8(..8) {
        0 if at < input.len() => input[at] ^= 1 << random.u8(..8),
        1 if at < input.len() => input[at] = MEANINGFUL[random.usize(..MEANINGFUL.len())],
        2 => input.insert(at, MEANINGFUL[random.usize(..MEANINGFUL.len())]),
        3 => drop(input.drain(part)),
        // A part again, in another place.
        4 => {
            let part = input[part].to_vec();
            input.splice(at..at, part);
        }
        // A part many times.
        5 => {
            let part = input[part].repeat(random.usize(2..9));
            input.splice(at..at, part);
        }
        // A part of another seed.
        6 => {
            let other = &seeds[random.usize(..seeds.len())];
            let part = other[part_of(other, random)].to_vec();
            input.splice(at..at, part);
        }
        // A line in the place of another one.
        _ => {
            let mut lines: Vec<_> = input.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            let (from, to) = (random.usize(..lines.len()), random.usize(..lines.len()));
            lines.swap(from, to);
            *input = lines.join(&b'\n');
        }
    }
}

/// Returns a part of the input, mostly a short one.
fn part_of(input: &[u8], random: &mut fastrand::Rng) -> std::ops::Range<usize> {
    let start = random.usize(..=input.len());
    let most = if random.u8(..4) == 0 { input.len() } else { 12 };
    start..input.len().min(start + random.usize(..=most))
}
