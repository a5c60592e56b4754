//! `millrace cluster init`: the directories of a new cluster's nodes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use millrace_access::KeyFile;
use millrace_base::hex;
use millrace_io::{Random, RealRandom};
use millrace_node::{DataDirectory, is_rack};
use millrace_peers::{ClusterId, certificate_name, check_address};
use millrace_replica::NodeId;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, Issuer, KeyPair};

use super::directory::{ClusterFile, Credentials, MemberEntry, write_new};
use super::{InitArgs, init_from};
use crate::Failure;
use crate::settings::KEY_FILE;

/// Makes what is to be carried to the nodes.
///
/// # Errors
/// A sentence that says what to change.
pub(super) fn init(args: &InitArgs) -> Result<(), Failure> {
    if args.http.len() != args.peer.len() {
        return Err("--http and --peer need one address for each node".into());
    }
    if !args.s3.is_empty() && args.s3.len() != args.http.len() {
        return Err("--s3 needs one address for each node, or none at all".into());
    }
    if !args.rack.is_empty() && args.rack.len() != args.http.len() {
        return Err("--rack needs one name for each node, or none at all".into());
    }
    if let Some(wrong) = args.rack.iter().find(|rack| !is_rack(rack)) {
        return Err(format!("--rack {wrong}: a rack's name is letters, digits, `.`, `-` and `_`, at most 64").into());
    }
    let (mut s3, mut racks) = (args.s3.iter().cloned(), args.rack.iter().cloned());
    let addresses = |(http, peer): (&String, &String)| {
        let (http, peer) = (http.clone(), peer.clone());
        Addresses { http, peer, s3: s3.next(), rack: racks.next() }
    };
    let members: Vec<Addresses> = args.http.iter().zip(&args.peer).map(addresses).collect();
    if let Some(from) = &args.from {
        return init_from::run(args, from, &members);
    }
    let keys = args.keys.as_deref().map(KeyFile::load).transpose()?;
    make(&args.data, &members, (args.shards.unwrap_or(SHARDS), args.replicas))?;
    for node in 1..=members.len() {
        let directory = args.data.join(format!("n{node}"));
        if let Some(keys) = &keys {
            keys.save(&directory.join(KEY_FILE))?;
        }
        println!("{}", directory.display());
    }
    Ok(())
}

/// Shards of a cluster, unless its operator says otherwise.
const SHARDS: u16 = 64;

/// Where a node is to listen.
pub(super) struct Addresses {
    pub http: String,
    pub peer: String,
    pub s3: Option<String>,
    pub rack: Option<String>,
}

/// Makes the directories of a cluster's nodes in `data`.
///
/// # Errors
/// A sentence that says what to change; what was made until then is left.
pub(super) fn make(data: &Path, members: &[Addresses], (shards, replicas): (u16, u16)) -> Result<(), Failure> {
    if members.len() < 3 || members.len() > millrace_base::limits::REPLICAS {
        let most = millrace_base::limits::REPLICAS;
        return Err(format!("a cluster begins with 3 to {most} nodes, and not with {}", members.len()).into());
    }
    check_replicas(replicas)?;
    if members.len() < usize::from(replicas) {
        return Err(format!(
            "{} nodes cannot hold each shard {replicas} times: give more, or fewer --replicas",
            members.len()
        )
        .into());
    }
    let entries = entries_of(members)?;
    let id = new_id();
    let mut secret = [0; 32];
    RealRandom.fill(&mut secret);
    let authority = authority_in(&data.join("authority"), &secret)?;
    for member in &entries {
        let directory = data.join(format!("n{}", member.node));
        let credentials = credentials_of(&authority, id, NodeId(member.node), &authority.pem())?;
        DataDirectory::prepare(&directory, shards, &secret, None)?;
        ClusterFile::new(id, member.node, (shards, replicas), entries.clone()).write(&directory, &credentials)?;
    }
    Ok(())
}

/// # Errors
/// A sentence that says what may be.
pub(super) fn check_replicas(replicas: u16) -> Result<(), Failure> {
    if [3, 5].contains(&replicas) {
        Ok(())
    } else {
        Err(format!("each shard is on 3 or 5 nodes, and not on {replicas}").into())
    }
}

pub(super) fn new_id() -> ClusterId {
    let mut id = [0; 16];
    RealRandom.fill(&mut id);
    ClusterId(id)
}

/// Numbers nodes from 1 on.
///
/// # Errors
/// A sentence that names an address that cannot be one.
pub(super) fn entries_of(members: &[Addresses]) -> Result<Vec<MemberEntry>, Failure> {
    let mut known = BTreeSet::new();
    for address in members.iter().flat_map(|member| [&member.http, &member.peer].into_iter().chain(&member.s3)) {
        check_address(address)?;
        if !known.insert(address) {
            return Err(format!("{address}: it is given twice, and each address is one node's for one purpose").into());
        }
    }
    let entry = |(index, member): (usize, &Addresses)| MemberEntry {
        node: u16::try_from(index + 1).unwrap_or(u16::MAX),
        http: member.http.clone(),
        peer: member.peer.clone(),
        s3: member.s3.clone(),
        rack: member.rack.clone(),
    };
    Ok(members.iter().enumerate().map(entry).collect())
}

/// Makes the authority that signs the nodes' certificates, beside what all nodes know.
pub(super) fn authority_in(directory: &Path, secret: &[u8; 32]) -> Result<CertifiedIssuer<'static, KeyPair>, Failure> {
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let authority = CertifiedIssuer::self_signed(parameters_of_authority(), KeyPair::generate()?)?;
    write_new(&directory.join("authority.pem"), &authority.pem(), 0o644)?;
    write_new(&directory.join("authority.key"), &authority.key().serialize_pem(), 0o600)?;
    write_new(&directory.join(SECRET), &hex(secret), 0o600)?;
    Ok(authority)
}

/// What all nodes of the cluster know, as 64 hexadecimal digits.
const SECRET: &str = "secret";

/// The key of the names of results as 32 hexadecimal digits, where the cluster began with the data of a node that stood alone.
/// Elsewhere that key follows from the secret.
const RESULT_KEY: &str = "result-key";

/// Keeps the key of the names of results for the nodes that will join.
///
/// # Errors
/// A sentence that names the file.
pub(super) fn keep_result_key(authority: &Path, key: [u8; 16]) -> Result<(), Failure> {
    write_new(&authority.join(RESULT_KEY), &hex(&key), 0o600)
}

/// Makes the directory of a node that comes to a cluster which is there.
///
/// # Errors
/// A sentence that says what to change.
pub(super) fn make_joining(
    directory: &Path,
    authority: &Path,
    (id, node, shards): (ClusterId, u16, u16),
    members: Vec<MemberEntry>,
) -> Result<(), Failure> {
    let Authority { issuer, secret, result_key } = read_authority(authority)?;
    let credentials = credentials_of(&issuer, id, NodeId(node), &read_text(&authority.join("authority.pem"))?)?;
    DataDirectory::prepare(directory, shards, &secret, result_key)?;
    ClusterFile::joined(id, node, shards, members).write(directory, &credentials)
}

/// Whether a directory is an authority's that can make a node, before anybody is told of the node.
///
/// # Errors
/// A sentence that names the file that is wrong.
pub(super) fn check_authority(directory: &Path) -> Result<(), Failure> {
    read_authority(directory).map(|_| ())
}

fn read_text(path: &Path) -> Result<String, Failure> {
    Ok(fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?)
}

/// What `cluster init` has made for the nodes that will join.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    secret: [u8; 32],
    result_key: Option<[u8; 16]>,
}

fn read_authority(directory: &Path) -> Result<Authority, Failure> {
    let named = |error: rcgen::Error| format!("{}: {error}", directory.display());
    let key = KeyPair::from_pem(&read_text(&directory.join("authority.key"))?).map_err(named)?;
    let issuer = Issuer::new(parameters_of_authority(), key);
    let secret = read_digits(&directory.join(SECRET))?;
    let path = directory.join(RESULT_KEY);
    let result_key = if path.exists() { Some(read_digits(&path)?) } else { None };
    Ok(Authority { issuer, secret, result_key })
}

/// Bytes that a file has as hexadecimal digits.
fn read_digits<const BYTES: usize>(path: &Path) -> Result<[u8; BYTES], Failure> {
    let text = read_text(path)?;
    let byte = |at: usize| u8::from_str_radix(text.trim().get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> =
        (text.trim().len() == BYTES * 2).then(|| (0..BYTES * 2).step_by(2).map(byte).collect()).flatten();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    Ok(bytes.ok_or_else(|| format!("{}: not {} hexadecimal digits", path.display(), BYTES * 2))?)
}

fn parameters_of_authority() -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "a millrace cluster");
    parameters
}

pub(super) fn credentials_of(
    authority: &Issuer<'_, KeyPair>,
    cluster: ClusterId,
    node: NodeId,
    authority_pem: &str,
) -> Result<Credentials, Failure> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec![certificate_name(cluster, node)])?.signed_by(&key, authority)?;
    Ok(Credentials { certificate: certificate.pem(), key: key.serialize_pem(), authority: authority_pem.to_owned() })
}
