//! Limits for anonymous clients and for costly requests.

use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::Served;

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

/// 97 KB that decompress to fifty million values are refused after 64 KiB, on every public route.
#[test]
fn anonymous_bodies_are_small_compressed_or_not() {
    let served = Served::start();
    let bomb = packed(&[b"{\"a\":[".as_slice(), &b"1,".repeat(50_000_000), b"1]}"].concat());
    let plain = json!({"name": "x".repeat(65 * 1024), "password": "x"}).to_string().into_bytes();
    for path in ["/api/v1/login", "/api/v2/login", "/api/v1/setup"] {
        let begun = Instant::now();
        let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
        let answer = served.anonymous().send_bytes("POST", path, &headers, bomb.clone());
        assert_eq!(answer.status, 413, "{path}: {answer:?}");
        assert!(begun.elapsed() < Duration::from_secs(1), "{path}: {:?}", begun.elapsed());
        let answer = served.anonymous().send_bytes("POST", path, &headers[..1], plain.clone());
        assert_eq!(answer.status, 413, "{path}: {answer:?}");
        assert!(answer.text.contains("64 KiB"), "{answer:?}");
    }
    // A forge may send more, up to a mebibyte.
    let hook = "/api/v1/webhooks/00000000-0000-0000-0000-000000000000";
    let sizes = [(1 << 20, 401), ((1 << 20) + 1, 413)];
    for (size, status) in sizes {
        assert_eq!(
            served.anonymous().send_bytes("POST", hook, &[], vec![b' '; size]).status,
            status
        );
    }
    // The Inmanta-compatible login accepts two fields only.
    let login = |body| served.anonymous().post("/api/v2/login", &body).status;
    let password = crate::support::ADMIN_PASSWORD;
    assert_eq!(login(json!({"username": "admin", "password": password})), 200);
    assert_eq!(login(json!({"username": "admin", "password": password, "x": 1})), 400);
    assert_eq!(login(json!({"username": "admin"})), 400);
}

/// Comparing files needs a role, has a limit, and does not block other requests.
#[test]
fn comparing_files_is_bounded() {
    use sha1::Digest as _;
    let served = Served::start();
    let put = |content: &[u8]| {
        let name: String = sha1::Sha1::digest(content).iter().map(|b| format!("{b:02x}")).collect();
        let path = format!("/api/v1/files/{name}");
        let status = served.admin.send_bytes("PUT", &path, &[], content.to_vec()).status;
        assert_eq!(status, 204);
        name
    };
    // Worst case for the algorithm: lines of one letter, without a common order.
    let lines = |start: u32| -> Vec<u8> {
        let mut state = start;
        let mut letter = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b'a' + u8::try_from((state >> 16) % 26).unwrap()
        };
        (0..500_000).flat_map(|_| [letter(), b'\n']).collect()
    };
    let (one, other) = (put(&lines(1)), put(&lines(2)));
    let large = put(&vec![b'x'; (1 << 20) + 1]);
    let diff = |one: &str, other: &str| json!({"file_id_1": one, "file_id_2": other});
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..4)
            .map(|_| {
                let body = diff(&one, &other);
                let admin = served.admin.clone();
                scope.spawn(move || admin.post("/api/v1/filediff", &body).status)
            })
            .collect();
        let begun = Instant::now();
        while asked.iter().any(|one| !one.is_finished()) {
            let asked = Instant::now();
            assert_eq!(served.anonymous().get("/health/live").status, 200);
            assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
            assert!(begun.elapsed() < Duration::from_secs(50), "it takes too long");
            std::thread::sleep(Duration::from_millis(100));
        }
        for one in asked {
            assert_eq!(one.join().unwrap(), 200);
        }
    });
    assert_eq!(served.admin.post("/api/v1/filediff", &diff(&one, &large)).status, 413);
    let new = json!({"name": "ada", "password": "Staple-battery-2"});
    served.admin.post("/api/v1/users", &new).good();
    let ada = served.login("ada", "Staple-battery-2");
    assert_eq!(ada.post("/api/v1/filediff", &diff(&one, &other)).status, 403);
    assert_eq!(ada.send_bytes("PUT", &format!("/api/v1/files/{one}"), &[], vec![]).status, 403);
    assert_eq!(ada.post("/api/v1/files/missing", &json!({"hashes": []})).status, 403);
    assert_eq!(ada.get(&format!("/api/v1/files/{one}")).status, 403);
}
