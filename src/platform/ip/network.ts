/** A network that an address belongs to. */
export interface Network {
  readonly name: string;
  /**
   * A multiple of the limit of one address. A provider gives a customer a prefix of 64, 56 or 48 bits; a mobile one shares 48 among
   * many.
   */
  readonly times: number;
}

const prefixes = [
  { bits: 64, times: 1 },
  { bits: 56, times: 4 },
  { bits: 48, times: 16 },
] as const;

/**
 * The networks that a client counts towards, narrowest first: one with many addresses is not many clients. An IPv4 address is one
 * by itself.
 */
export function networksOf(address: string): readonly Network[] {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped !== undefined || !address.includes(':')) return [{ name: mapped ?? address, times: 1 }];
  const groups = firstGroupsOf(address);
  return prefixes.map(({ bits, times }) => {
    const kept = groups.map((group, index) => group & masks[Math.min(16, Math.max(0, bits - 16 * index))]!);
    return { name: `${kept.map((group) => group.toString(16)).join(':')}::/${bits}`, times };
  });
}

/** The widest of them, for which one place is enough: clients that share it wait for each other, and others do not wait for them. */
export const widestNetworkOf = (address: string): string => networksOf(address).at(-1)!.name;

/** Indexed by the number of bits of a group that are kept. */
const masks = Array.from({ length: 17 }, (_, bits) => (0xffff << (16 - bits)) & 0xffff);

/** The four groups of 16 bits that an IPv6 address begins with. */
function firstGroupsOf(address: string): readonly number[] {
  const [head = '', tail] = address.split('%')[0]!.split('::');
  const before = head === '' ? [] : head.split(':');
  const after = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros: string[] = tail === undefined ? [] : Array(Math.max(0, 8 - before.length - after.length)).fill('0');
  return [...before, ...zeros, ...after].slice(0, 4).map((group) => Number.parseInt(group, 16));
}
