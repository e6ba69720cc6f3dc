//! Plug-in resources in a bucket of moto's server.

use std::process::Command;

use orrery_model::SecretText;
use orrery_provisioner::plugin::PluginResources as _;
use orrery_provisioner::resource_store::PluginResourceStore as _;
use orrery_provisioner::s3_store::{S3ResourceStore, S3Settings};

use crate::ec2::Moto;
use crate::harness::install_packages;

#[test]
fn contents_are_stored_in_a_bucket() {
    let Some(python) = install_packages("moto[server,ec2,s3]>=5,<6") else { return };
    let directory = tempfile::tempdir().unwrap();
    let moto = Moto::start(&python, &directory.path().join("throttled"));
    let settings = S3Settings {
        endpoint: format!("http://127.0.0.1:{}", moto.port),
        region: "us-east-1".to_owned(),
        bucket: "orrery-resources".to_owned(),
        prefix: "plug-ins".to_owned(),
        access_key: "a".to_owned(),
        secret_key: SecretText::new("s"),
    };
    let store = S3ResourceStore::new(settings.clone()).unwrap();
    let error = store.put("shop", b"one").unwrap_err();
    assert!(error.message.contains("NoSuchBucket"), "{error}");
    let create = format!(
        "import boto3; boto3.client('s3', region_name='us-east-1', endpoint_url='{}', \
         aws_access_key_id='a', aws_secret_access_key='s').create_bucket(Bucket='orrery-resources')",
        settings.endpoint
    );
    assert!(Command::new(&python.program).args(["-c", &create]).status().unwrap().success());
    let digest = store.put("shop", b"one").unwrap();
    assert_eq!(&*store.content("shop", &digest).unwrap().unwrap(), b"one");
    assert_eq!(store.content("other", &digest).unwrap(), None);
    store.delete("shop", &digest).unwrap();
    store.delete("shop", &digest).unwrap();
    assert_eq!(store.content("shop", &digest).unwrap(), None);
    let large: Vec<u8> = (0..3_000_000_u32).map(|number| number as u8).collect();
    let digest = store.put("shop", &large).unwrap();
    assert_eq!(&*store.content("shop", &digest).unwrap().unwrap(), &*large);
}
