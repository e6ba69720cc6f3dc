//! Files.

use serde_json::json;

use super::{World, on_both, refused};

on_both!(files_match_their_hashes);

fn files_match_their_hashes(world: World) {
    let admin = world.admin();
    // SHA-1 of "hello".
    let name = "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d";
    let path = format!("/api/v1/files/{name}");
    refused(&admin.get(&path), 404, "not-found");
    let put = |content: &[u8]| {
        admin.send_bytes(
            "PUT",
            &path,
            &[("content-type", "application/octet-stream")],
            content.to_vec(),
        )
    };
    refused(&put(b"other"), 400, "content-differs");
    assert_eq!(put(b"hello").status, 204);
    assert_eq!(put(b"hello").status, 204);
    let got = admin.get(&path);
    assert_eq!((got.status, got.text.as_str()), (200, "hello"));
    let head = admin.send("HEAD", &path, &[], None);
    assert_eq!((head.status, head.headers["content-length"].to_str().unwrap()), (200, "5"));
    let other = "0".repeat(40);
    let missing = admin.post("/api/v1/files/missing", &json!({"hashes": [name, other]})).good();
    assert_eq!(missing["hashes"], json!([other]));
    refused(&admin.post("/api/v1/files/missing", &json!({"hashes": ["x"]})), 422, "invalid");
    refused(
        &admin.get("/api/v1/files/+af4c61ddcc5e8a2dabede0f3b482cd9aea9434d"),
        400,
        "bad-request",
    );
}
