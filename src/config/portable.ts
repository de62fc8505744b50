import type { Config } from './config.ts';
import { Secret } from './secret.ts';

/** A configuration for another of our processes, by structured clone; it contains readable secrets. */
export interface PortableConfig {
  readonly portable: unknown;
}

interface PortableSecret {
  readonly secretText: string;
}

/** Class instances lose their class in a structured clone; secrets are the only ones in a configuration. */
export const portableConfig = (config: Config): PortableConfig => ({ portable: packed(config) });

export const configOf = ({ portable }: PortableConfig): Config => unpacked(portable) as Config;

function packed(value: unknown): unknown {
  if (value instanceof Secret) return { secretText: value.reveal() } satisfies PortableSecret;
  return mapped(value, packed);
}

function unpacked(value: unknown): unknown {
  if (isPortableSecret(value)) return new Secret(value.secretText);
  return Object.freeze(mapped(value, unpacked));
}

/** No group of the configuration has this key. */
const isPortableSecret = (value: unknown): value is PortableSecret =>
  typeof value === 'object' && value !== null && Object.hasOwn(value, 'secretText');

function mapped(value: unknown, map: (member: unknown) => unknown): unknown {
  if (Array.isArray(value)) return value.map(map);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, map(member)]));
}
