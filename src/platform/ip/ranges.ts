import { BlockList, isIP, SocketAddress } from 'node:net';

/** A single IPv4 address is its own `/32`. */
interface Range {
  /** In the form of `plainAddress`. */
  readonly address: string;
  readonly family: 'ipv4' | 'ipv6';
  readonly prefix: number;
}

const addressLengthMax = 45;
const mappedBits = 96;

/**
 * An address in canonical form: IPv6 short and in lower case, IPv4 inside IPv6 (`::ffff:…`) as that IPv4 address. `undefined`:
 * the text is not an address, or has a zone.
 */
export function plainAddress(text: string): string | undefined {
  if (text.length > addressLengthMax || text.includes('%')) return undefined;
  const version = isIP(text);
  if (version !== 6) return version === 4 ? text : undefined;
  const { address } = new SocketAddress({ address: text, family: 'ipv6' });
  return /^::ffff:(\d+\.\d+\.\d+\.\d+)$/.exec(address)?.[1] ?? address;
}

/** Parses an address or a range such as `10.0.0.0/8`; undefined if it is neither. */
export function rangeOf(text: string): Range | undefined {
  const [, written = '', bits] = /^([0-9a-fA-F.:]{2,45})(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const address = plainAddress(written);
  if (address === undefined) return undefined;
  const [family, length] = isIP(address) === 4 ? (['ipv4', 32] as const) : (['ipv6', 128] as const);
  const before = family === 'ipv4' && written.includes(':') ? mappedBits : 0;
  const prefix = bits === undefined ? length : Number(bits) - before;
  return prefix < 0 || prefix > length ? undefined : { address, family, prefix };
}

/** Addresses and address ranges, parsed once and queried often. An IPv4 address inside an IPv6 one is that IPv4 address. */
export class AddressRanges {
  readonly #list = new BlockList();

  /** An invalid text contains no address. */
  constructor(texts: readonly string[]) {
    for (const text of texts) {
      const range = rangeOf(text);
      if (range !== undefined) this.#list.addSubnet(range.address, range.prefix, range.family);
    }
  }

  /** Whether an address is among them, in a socket's form (possibly with a zone). */
  has(address: string): boolean {
    const zone = address.indexOf('%');
    const plain = plainAddress(zone < 0 ? address : address.slice(0, zone));
    return plain !== undefined && this.#list.check(plain, isIP(plain) === 4 ? 'ipv4' : 'ipv6');
  }
}
