//! Each view of the report's page in a browser against the picture of it that somebody looked at and kept.
//!
//! The kept pictures in `html/golden` are small: each pixel is the mean colour of a square of the screen, so that another
//! version of a font does not count, and a picture that is missing, empty, moved or drawn in other colours does. With
//! `NUMAMMA_KEEP_PICTURES=1` the test writes them anew; look at them before you commit them.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::process::Command;

use super::synthetic;
use crate::common::{Scratch, numamma, root, run};

/// The machine of the advice, so that the one that the test runs on has no part in it.
const TARGET: &str = "pack:4 numa:2 core:6";
/// Views by their links.
const VIEWS: [(&str, &str); 5] = [
    ("overview", "#overview"),
    ("objects", "#objects"),
    ("object", "#object=0"),
    ("threads", "#threads"),
    ("cartography", "#cartography"),
];
/// Pixels of the window.
const SCREEN: (usize, usize) = (1280, 1600);
/// Pixels of a side of the squares.
const SQUARE: usize = 16;
/// Most that the squares may differ on average, of 255; other fonts differ by 1 to 2.
const MEAN: f64 = 4.0;
/// A square differs when one of its colours does by so much, and the part of the squares that may.
const FAR: u8 = 48;
const MOST_FAR: f64 = 0.03;

/// Mean colours of the squares, by row.
type Squares = Vec<[u8; 3]>;

/// The pixels of a PNG file, of which only the colours count.
fn pixels(path: &Path) -> (usize, Vec<[u8; 3]>) {
    let file = File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut reader = png::Decoder::new(BufReader::new(file)).read_info().expect("a PNG file");
    let mut bytes = vec![0; reader.output_buffer_size().expect("a picture of this test")];
    let info = reader.next_frame(&mut bytes).expect("its pixels");
    let pixels = bytes[..info.buffer_size()].chunks(info.color_type.samples()).map(|p| [p[0], p[1], p[2]]);
    (info.width as usize, pixels.collect())
}

fn squares(path: &Path) -> Squares {
    let (width, all) = pixels(path);
    assert_eq!((width, all.len()), (SCREEN.0, SCREEN.0 * SCREEN.1), "{}", path.display());
    let mean = |row: usize, column: usize| {
        let mut sum = [0_usize; 3];
        for y in row * SQUARE..(row + 1) * SQUARE {
            let line = &all[y * width + column * SQUARE..][..SQUARE];
            line.iter().for_each(|pixel| (0..3).for_each(|c| sum[c] += usize::from(pixel[c])));
        }
        sum.map(|s| (s / (SQUARE * SQUARE)) as u8)
    };
    (0..SCREEN.1 / SQUARE).flat_map(|row| (0..SCREEN.0 / SQUARE).map(move |column| mean(row, column))).collect()
}

fn keep(path: &Path, squares: &Squares) {
    let file = BufWriter::new(File::create(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
    let mut encoder = png::Encoder::new(file, (SCREEN.0 / SQUARE) as u32, (SCREEN.1 / SQUARE) as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().and_then(|mut writer| writer.write_image_data(&squares.concat())).expect("writable");
}

/// Why two pictures are not the same; none if they are.
fn difference(seen: &Squares, kept: &Squares) -> Option<String> {
    let apart = |(a, b): (&[u8; 3], &[u8; 3])| [0, 1, 2].map(|c| a[c].abs_diff(b[c]));
    let all: Vec<[u8; 3]> = seen.iter().zip(kept).map(apart).collect();
    let mean = all.concat().iter().map(|d| f64::from(*d)).sum::<f64>() / (3 * all.len()) as f64;
    let far = all.iter().filter(|d| d.iter().any(|d| *d > FAR)).count() as f64 / all.len() as f64;
    let differ = seen.len() != kept.len() || mean > MEAN || far > MOST_FAR;
    differ.then(|| format!("{mean:.1} of 255 on average, {:.1} % of the squares by more than {FAR}", 100.0 * far))
}

/// The screen of a page at `link`; false without a browser.
fn photograph(dir: &Scratch, page: &Path, link: &str, dark: bool, picture: &Path) -> bool {
    let mut browser = Command::new("chromium");
    browser.args([
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--virtual-time-budget=10000",
    ]);
    browser.arg(format!("--window-size={},{}", SCREEN.0, SCREEN.1));
    if dark {
        browser.arg("--blink-settings=preferredColorScheme=0");
    }
    browser.arg(format!("--user-data-dir={}", dir.join("browser").display()));
    browser.arg(format!("--screenshot={}", picture.display())).arg(format!("file://{}{link}", page.display()));
    match browser.output() {
        Ok(_) => true,
        Err(_) => {
            crate::common::skipped("no chromium here, scripts/setup tests installs it");
            false
        }
    }
}

#[test]
fn the_views_of_the_page_look_as_they_did() {
    let dir = Scratch::new("golden");
    let (page, kept) = (dir.join("page.html"), root().join("tests/cli/html/golden"));
    let prof = synthetic::write("golden", &synthetic::lu());
    run(numamma(&["report", "--target", TARGET, "--html"]).arg(&page).arg(&prof)).success();
    let (mut wrong, mut all) = (Vec::new(), Vec::new());
    let dark = VIEWS.iter().filter(|(name, _)| *name == "object").map(|(_, link)| ("object-dark", *link, true));
    for (name, link, dark) in VIEWS.into_iter().map(|(name, link)| (name, link, false)).chain(dark) {
        let (picture, golden) = (dir.join(format!("{name}.png")), kept.join(format!("{name}.png")));
        if !photograph(&dir, &page, link, dark, &picture) {
            return;
        }
        let seen = squares(&picture);
        if std::env::var_os("NUMAMMA_KEEP_PICTURES").is_some() {
            fs::create_dir_all(&kept).expect("writable");
            keep(&golden, &seen);
        }
        let (_, golden) = pixels(&golden);
        if let Some(why) = difference(&seen, &golden) {
            wrong.push(format!("{name}: {why}; see {}", picture.display()));
        }
        all.push((name, golden));
    }
    assert_eq!(wrong, [""; 0], "if it is meant so, NUMAMMA_KEEP_PICTURES=1 keeps the new pictures");
    for (i, (one, a)) in all.iter().enumerate() {
        let same = all[..i].iter().find(|(_, b)| difference(a, b).is_none());
        assert!(same.is_none(), "{one} and {:?} look the same: the comparison sees nothing", same.map(|s| s.0));
    }
}
