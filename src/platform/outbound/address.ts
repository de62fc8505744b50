import { isIPv4, isIPv6 } from 'node:net';

/**
 * Whether an IP address, as text, belongs to the public internet: global unicast, and outside the ranges of IANA's special-purpose
 * registries (RFC 6890). Everything else is refused, including doubtful cases: addresses with a zone, and IPv6 addresses that embed
 * any IPv4 one (mapped, compatible, NAT64, 6to4, Teredo) (reliability §3.2).
 */
export function isGlobalUnicast(address: string): boolean {
  if (isIPv4(address)) {
    const value = bitsOfIPv4(address);
    return !special4.some((range) => contains(range, value));
  }
  // Also true of `fe80::1%eth0`.
  if (!isIPv6(address) || address.includes('%')) return false;
  const value = bitsOfIPv6(address);
  return contains(global6, value) && !special6.some((range) => contains(range, value));
}

interface Range {
  /** The common leading bits, moved to the right end. */
  readonly prefix: bigint;
  /** The number of bits after them. */
  readonly rest: bigint;
}

const range4 = (text: string): Range => rangeOf(text, 32, bitsOfIPv4);
const range6 = (text: string): Range => rangeOf(text, 128, bitsOfIPv6);

const special4: readonly Range[] = [
  '0.0.0.0/8', // "this network"; 0.0.0.0 reaches the local computer on Linux
  '10.0.0.0/8',
  '100.64.0.0/10', // carrier-grade NAT, and metadata services of clouds
  '127.0.0.0/8',
  '168.63.129.16/32', // public by its number, but the host of a virtual machine in Azure
  '169.254.0.0/16', // link-local, metadata services of clouds
  '172.16.0.0/12',
  '192.0.0.0/24', // protocol assignments, metadata services of clouds
  '192.0.2.0/24', // documentation
  '192.88.99.0/24', // 6to4 relays
  '192.168.0.0/16',
  '198.18.0.0/15', // benchmarks
  '198.51.100.0/24', // documentation
  '203.0.113.0/24', // documentation
  '224.0.0.0/4', // multicast
  '240.0.0.0/4', // reserved, broadcast
].map(range4);

/** Everything allocated for use on the internet; excludes loopback, private, link-local and multicast. */
const global6 = range6('2000::/3');

const special6: readonly Range[] = [
  '2001::/23', // protocol assignments: Teredo, benchmarks, ORCHID
  '2001:db8::/32', // documentation
  '2002::/16', // 6to4
  '3fff::/20', // documentation
].map(range6);

const contains = ({ prefix, rest }: Range, value: bigint): boolean => value >> rest === prefix;

function rangeOf(text: string, width: number, bitsOf: (address: string) => bigint): Range {
  const [address = '', length] = text.split('/');
  const rest = BigInt(width - Number(length));
  return { prefix: bitsOf(address) >> rest, rest };
}

function bitsOfIPv4(address: string): bigint {
  return address.split('.').reduce((bits, part) => (bits << 8n) | BigInt(part), 0n);
}

/** Converts text that `isIPv6` accepts. */
function bitsOfIPv6(address: string): bigint {
  const [head = '', tail] = address.split('::');
  const before = groupsOf(head);
  const after = tail === undefined ? [] : groupsOf(tail);
  const zeros = new Array<number>(8 - before.length - after.length).fill(0);
  return [...before, ...zeros, ...after].reduce((bits, group) => (bits << 16n) | BigInt(group), 0n);
}

/** 16 bits each; a dotted quad at the end is two of them. */
function groupsOf(text: string): number[] {
  if (text === '') return [];
  return text.split(':').flatMap((group) => {
    if (!group.includes('.')) return [Number.parseInt(group, 16)];
    const bits = Number(bitsOfIPv4(group));
    return [Math.floor(bits / 65_536), bits % 65_536];
  });
}
