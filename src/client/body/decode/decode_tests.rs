//! Tests of decompression: bodies cut at every byte, garbage, bombs, padding.

#![cfg(all(feature = "gzip", feature = "brotli", feature = "zstd", feature = "deflate"))]

use compression_codecs::EncodeV2;

use http::HeaderValue;

use super::*;

fn encoded(mut codec: impl EncodeV2, data: &[u8]) -> Vec<u8> {
    let mut room = vec![0; data.len() + 4096];
    let mut output = WriteBuffer::new_initialized(&mut room);
    let mut input = PartialBuffer::new(data);
    while !input.unwritten().is_empty() {
        codec.encode(&mut input, &mut output).unwrap();
    }
    while !codec.finish(&mut output).unwrap() {}
    let written = output.written_len();
    room.truncate(written);
    room
}

fn coded(coding: &str, data: &[u8]) -> Vec<u8> {
    use compression_codecs::*;
    match coding {
        "gzip" => encoded(GzipEncoder::new(flate2_level()), data),
        "br" => encoded(
            BrotliEncoder::new(
                brotli::params::EncoderParams::default().quality(compression_codecs::core::Level::Fastest),
            ),
            data,
        ),
        "zstd" => encoded(ZstdEncoder::new(1), data),
        "deflate" => encoded(ZlibEncoder::new(flate2_level()), data),
        "raw" => encoded(DeflateEncoder::new(flate2_level()), data),
        _ => data.to_vec(),
    }
}

fn flate2_level() -> compression_codecs::flate::params::FlateEncoderParams {
    compression_codecs::core::Level::Default.into()
}

fn headers(coding: &str) -> HeaderMap {
    let mut headers = HeaderMap::from_iter([(CONTENT_ENCODING, coding.parse().unwrap())]);
    headers.insert("content-length", HeaderValue::from_static("1"));
    headers
}

/// Decodes data that arrives in pieces of `size` bytes.
fn decoded(coding: &str, data: &[u8], size: usize, limits: Decompression) -> Result<Vec<u8>, String> {
    let text = |error: DecodeError| error.to_string();
    let mut decoder = Decoder::of(&mut headers(coding), limits).map_err(text)?.expect("a coding");
    let mut all = Vec::new();
    let mut pieces = data.chunks(size);
    while !decoder.is_over() {
        match decoder.next().map_err(text)? {
            DecoderStep::Decoded(made) => all.extend_from_slice(&made),
            DecoderStep::Yield => {}
            DecoderStep::NeedsInput => match pieces.next() {
                Some(piece) => decoder.push(Bytes::copy_from_slice(piece)),
                None => decoder.end(),
            },
        }
    }
    assert!(decoder.is_over());
    Ok(all)
}

fn text(length: usize) -> Vec<u8> {
    (0..length).map(|at| b"speeddial "[at % 10] ^ (at / 977) as u8).collect()
}

#[test]
fn a_body_is_decoded_however_it_is_cut() {
    for length in [0, 1, 2, 100, 100_000] {
        let data = text(length);
        for coding in ["gzip", "br", "zstd", "deflate"] {
            let coded = coded(coding, &data);
            for size in [1, 2, 3, 7, 1_000, 1 << 20] {
                let decoded = decoded(coding, &coded, size, Decompression::default());
                assert!(
                    decoded.as_ref() == Ok(&data),
                    "{coding} of {length} in {size}: {:?}",
                    decoded.map(|all| all.len())
                );
            }
        }
        let raw = coded("raw", &data);
        assert!(decoded("deflate", &raw, 1, Decompression::default()) == Ok(data), "raw deflate of {length}");
    }
}

#[test]
fn an_empty_body_is_empty_whatever_its_coding() {
    for coding in ["gzip", "br", "zstd", "deflate", "gzip, br"] {
        assert_eq!(decoded(coding, b"", 1, Decompression::default()), Ok(Vec::new()));
    }
}

#[test]
fn all_members_count_and_two_codings_come_off_in_turn() {
    let both = [coded("gzip", b"one, "), coded("gzip", b"two, "), coded("gzip", b"three")].concat();
    assert_eq!(decoded("x-gzip", &both, 5, Decompression::default()), Ok(b"one, two, three".to_vec()));
    let frames = [coded("zstd", b"one, "), coded("zstd", b"two")].concat();
    assert_eq!(decoded("zstd", &frames, 3, Decompression::default()), Ok(b"one, two".to_vec()));
    let data = text(50_000);
    let twice = coded("br", &coded("gzip", &data));
    assert!(decoded("gzip, BR", &twice, 100, Decompression::default()) == Ok(data));
}

#[test]
fn more_than_two_codings_are_refused_and_unknown_ones_left() {
    let of = |coding: &str| Decoder::of(&mut headers(coding), Decompression::default());
    assert!(matches!(of("gzip, gzip, gzip"), Err(DecodeError::TooManyCodings)));
    assert!(of("gzip, gzip, identity").is_ok_and(|decoder| decoder.is_some()));
    for coding in ["identity", "compress", "gzip, compress", "", ","] {
        assert!(of(coding).is_ok_and(|decoder| decoder.is_none()), "{coding}");
    }
    let mut left = headers("compress");
    Decoder::of(&mut left, Decompression::default()).unwrap();
    assert_eq!(left, headers("compress"));
    let mut taken = headers("gzip");
    Decoder::of(&mut taken, Decompression::default()).unwrap();
    assert!(taken.is_empty());
    assert!(Decoder::of(&mut headers("gzip"), Decompression::none()).unwrap().is_none());
}

#[test]
fn a_cut_is_an_error_at_every_byte() {
    let data = text(300);
    for coding in ["gzip", "br", "zstd", "deflate"] {
        let whole = coded(coding, &data);
        for length in 1..whole.len() {
            let cut = decoded(coding, &whole[..length], 64, Decompression::default());
            assert!(cut.is_err(), "{coding}, {length} of {} bytes: {cut:?}", whole.len());
        }
    }
}

#[test]
fn garbage_is_an_error() {
    for coding in ["gzip", "br", "zstd", "deflate"] {
        let whole = coded(coding, &text(300));
        let after = [&whole[..], b"garbage"].concat();
        assert!(decoded(coding, &after, 64, Decompression::default()).is_err(), "{coding}");
        assert!(decoded(coding, b"this is no compression at all", 64, Decompression::default()).is_err(), "{coding}");
    }
    let mut wrong = coded("gzip", &text(300));
    let at = wrong.len() - 6;
    wrong[at] ^= 1;
    assert!(decoded("gzip", &wrong, 64, Decompression::default()).unwrap_err().contains("CRC"));
}

#[test]
fn bombs_are_refused() {
    let zeros = vec![0; 32 << 20];
    for coding in ["gzip", "br", "zstd", "deflate"] {
        let bomb = coded(coding, &zeros);
        let refused = decoded(coding, &bomb, 1 << 16, Decompression::default());
        assert_eq!(refused.unwrap_err(), "it becomes more than 250 times as long", "{coding}");
        let short = decoded(coding, &bomb, 1 << 16, Decompression::default().max_bytes(1 << 20));
        assert_eq!(short.unwrap_err(), "it becomes longer than 1048576 bytes", "{coding}");
        let allowed = decoded(coding, &bomb, 1 << 16, Decompression::default().max_ratio(u64::MAX));
        assert_eq!(allowed.map(|all| all.len()), Ok(32 << 20), "{coding}");
    }
    let twice = coded("gzip", &coded("gzip", &zeros));
    assert!(decoded("gzip, gzip", &twice, 64, Decompression::default()).is_err());
}

#[test]
fn a_zstd_window_of_more_than_8_mib_is_refused() {
    // A frame with a window of 2 GiB, and one raw block of one byte.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x09, 0x00, 0x00, b'x'];
    let refused = decoded("zstd", &frame, 64, Decompression::default());
    assert!(refused.unwrap_err().starts_with("it is not valid zstd"));
}

#[test]
fn the_output_of_an_inner_coding_is_limited_and_lets_other_tasks_run() {
    // Skippable frames: they decode to nothing, however many there are.
    let nothing = [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0].repeat(4 << 20);
    let bomb = coded("br", &nothing);
    assert!(bomb.len() < 100_000, "{}", bomb.len());
    let refused = decoded("zstd, br", &bomb, 64, Decompression::default());
    assert_eq!(refused.unwrap_err(), "it consists of too many members");
    let mut decoder = Decoder::of(&mut headers("zstd, br"), Decompression::default()).unwrap().unwrap();
    decoder.push(bomb.into());
    assert!(matches!(decoder.next(), Ok(DecoderStep::Yield)), "other tasks run");
}

#[test]
fn two_codings_come_off_a_byte_at_a_time() {
    let data = text(3_000);
    for outer in ["gzip", "br", "zstd", "deflate"] {
        for inner in ["gzip", "br", "zstd", "deflate", "raw"] {
            // Each byte of the inner coding is flushed by itself where the outer one has members.
            let within = coded(inner, &data);
            let whole = match outer {
                "gzip" | "zstd" => within.chunks(1).flat_map(|byte| coded(outer, byte)).collect(),
                _ => coded(outer, &within),
            };
            let codings = format!("{}, {outer}", inner.replace("raw", "deflate"));
            let decoded = decoded(&codings, &whole, 1, Decompression::default());
            assert!(decoded.as_ref() == Ok(&data), "{codings}: {:?}", decoded.map(|all| all.len()));
        }
    }
}

#[test]
fn short_pieces_take_little_room() {
    let flushed: Vec<u8> = (0..200).flat_map(|_| coded("gzip", b"x")).collect();
    let mut decoder = Decoder::of(&mut headers("gzip"), Decompression::default()).unwrap().unwrap();
    decoder.push(flushed.into());
    let mut pieces = Vec::new();
    while let Ok(DecoderStep::Decoded(made)) = decoder.next() {
        pieces.push(Vec::from(made));
    }
    assert_eq!(pieces.len(), 200);
    assert!(pieces.iter().map(Vec::capacity).sum::<usize>() < 2_000);
}

#[test]
fn a_body_that_is_flushed_at_any_size_is_whole() {
    use compression_codecs::{DeflateEncoder, GzipEncoder, ZlibEncoder};
    fn flushed(mut codec: impl EncodeV2, data: &[u8], size: usize) -> Vec<Vec<u8>> {
        let pieces = data.chunks(size).map(|piece| {
            let mut room = vec![0; piece.len() + 4_096];
            let mut output = WriteBuffer::new_initialized(&mut room);
            let mut input = PartialBuffer::new(piece);
            while !input.unwritten().is_empty() {
                codec.encode(&mut input, &mut output).unwrap();
            }
            while !codec.flush(&mut output).unwrap() {}
            let written = output.written_len();
            room.truncate(written);
            room
        });
        let mut pieces: Vec<_> = pieces.collect();
        pieces.push(encoded(codec, b""));
        pieces
    }
    let data: Vec<u8> = (0..400_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for size in [PIECE / 2, PIECE, 2 * PIECE, 3 * PIECE, PIECE - 1, PIECE + 1] {
        for (coding, pieces) in [
            ("gzip", flushed(GzipEncoder::new(flate2_level()), &data, size)),
            ("deflate", flushed(ZlibEncoder::new(flate2_level()), &data, size)),
            ("deflate", flushed(DeflateEncoder::new(flate2_level()), &data, size)),
        ] {
            let mut decoder = Decoder::of(&mut headers(coding), Decompression::default()).unwrap().unwrap();
            let mut all = Vec::new();
            let mut pieces = pieces.into_iter();
            while !decoder.is_over() {
                match decoder.next().unwrap_or_else(|error| panic!("{coding}, {size}: {error}")) {
                    DecoderStep::Decoded(made) => all.extend_from_slice(&made),
                    DecoderStep::Yield => {}
                    DecoderStep::NeedsInput => match pieces.next() {
                        Some(piece) => decoder.push(piece.into()),
                        None => decoder.end(),
                    },
                }
            }
            assert!(all == data, "{coding} flushed after {size}");
        }
    }
}

#[test]
fn zeros_behind_gzip_members_are_padding() {
    let member = coded("gzip", b"one ");
    for zeros in [1, 7, 512, 100_000] {
        let padded = [&member[..], &vec![0; zeros]].concat();
        for size in [1, 64, 1 << 20] {
            let decoded = |data: &[u8]| decoded("gzip", data, size, Decompression::default());
            assert_eq!(decoded(&padded), Ok(b"one ".to_vec()), "{zeros} zeros in {size}");
            assert_eq!(decoded(&padded.repeat(2)), Ok(b"one one ".to_vec()), "{zeros} zeros in {size}");
            assert!(decoded(&[&padded[..], b"garbage"].concat()).is_err(), "{zeros} zeros in {size}");
        }
    }
    let of = |coding: &str, data: &[u8]| decoded(coding, data, 1 << 16, Decompression::default());
    assert!(of("gzip", &[&member[..], &vec![0; MAX_PADDING + 1]].concat()).is_err(), "too many zeros are no padding");
    assert!(of("gzip", &[&[0; 3][..], &member].concat()).is_err(), "zeros in front are no padding");
    for coding in ["br", "zstd", "deflate"] {
        assert!(of(coding, &[&coded(coding, b"one")[..], &[0; 3]].concat()).is_err(), "{coding} has no padding");
    }
}

#[test]
fn members_are_limited_and_let_other_tasks_run() {
    let empty = coded("gzip", b"");
    let bomb = coded("br", &empty.repeat(400_000));
    let cases =
        [("gzip", empty.repeat(4 << 20 >> 4)), ("gzip, br", bomb), ("gzip", coded("gzip", b"x").repeat(100_000))];
    for (coding, data) in cases {
        let mut decoder = Decoder::of(&mut headers(coding), Decompression::default()).unwrap().expect("a coding");
        decoder.push(data.into());
        decoder.end();
        let error = loop {
            match decoder.next() {
                Ok(_) => assert!(!decoder.is_over(), "{coding}"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, DecodeError::TooManyMembers), "{coding}: {error}");
    }
    // Logs that are compressed line by line.
    let line: Vec<u8> = (0..400_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let line = coded("gzip", &line);
    let lines = line.repeat(5_000);
    assert!(line.len() > 128, "{}", line.len());
    assert_eq!(decoded("gzip", &lines, 4_096, Decompression::default()).unwrap().len(), 400 * 5_000);
}

#[test]
fn a_large_window_of_brotli_is_refused_by_its_first_byte() {
    for first in [0x11, 0x91] {
        let error = decoded("br", &[first, 0x3e, 0], 1, Decompression::default()).unwrap_err();
        assert_eq!(error, "it is not valid brotli: its window is a large one");
    }
    assert_eq!(decoded("br", &coded("br", b"small"), 1, Decompression::default()).unwrap(), b"small");
}
