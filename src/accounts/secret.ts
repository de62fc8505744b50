import { createHmac, createSecretKey, randomBytes, type KeyObject } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  fstatSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';

/** Keys known only to this service. They are kept outside the database, so stealing or writing the database yields no API key. */
export interface Secret {
  /** Key for hashes of API keys. */
  readonly pepper: KeyObject;
  /** Keys for signing and encrypting the reasoning that clients keep; 32 bytes each. */
  readonly reasoningSigning: KeyObject;
  readonly reasoningEncryption: KeyObject;
  /** Key for the hashes that stand for idempotency keys and bodies. */
  readonly fingerprints: KeyObject;
  /** Key for events of the built-in payment provider. */
  readonly demoPayments: KeyObject;
  /** Key for users' sessions, links and second factors. */
  readonly signIn: KeyObject;
  /** Key for the secrets that sign webhooks. */
  readonly webhooks: KeyObject;
  /** Key that the keys for signing days of usage are derived from, by their number (signing-key.ts). */
  readonly receipts: KeyObject;
  /** Separates the prompts of accounts in server caches, consistently across all processes that share the secret. */
  readonly promptCaches: KeyObject;
  /** Identifies the pepper in each key's row, so that a wrong one is noticed; reveals nothing about it. */
  readonly id: string;
  readonly source: 'environment' | 'file' | 'created';
}

export interface SecretOptions {
  /** The value of TOKENHOUSE_SECRET, passed by the code that reads the environment. */
  readonly fromEnvironment: string | undefined;
  readonly dataFolder: string;
  readonly warn: (message: string) => void;
}

/** The secret cannot be used: too short, or not the one that the keys were made with. */
export class SecretError extends Error {
  override readonly name = 'SecretError';
}

const secretLengthMin = 32;

/** Opens the secret from the environment if set, else from `secret` in the data folder, else creates one there. */
export function openSecret({ fromEnvironment, dataFolder, warn }: SecretOptions): Secret {
  if (fromEnvironment !== undefined && fromEnvironment !== '') {
    refuseWeak(fromEnvironment, 'TOKENHOUSE_SECRET');
    return secretOf(fromEnvironment, 'environment');
  }
  const file = join(dataFolder, 'secret');
  const text = readSecret(file, warn);
  if (text !== undefined) return secretOf(text, 'file');
  mkdirSync(dataFolder, { recursive: true, mode: 0o700 });
  return createSecret(file) ? secretOf(readSecret(file, warn)!, 'created') : secretOf(readSecret(file, warn)!, 'file');
}

/** The id of the secret in a file, as in the rows of keys; undefined if there is no such file. */
export function secretIdOf(file: string): string | undefined {
  const text = readSecret(file, () => {});
  return text === undefined ? undefined : secretOf(text, 'file').id;
}

function secretOf(text: string, source: Secret['source']): Secret {
  // Derived, so that no two uses of the secret share the same bytes.
  const derived = (use: string): Buffer => createHmac('sha256', text).update(use).digest();
  const pepper = derived('tokenhouse api keys');
  const id = createHmac('sha256', pepper).update('tokenhouse pepper id').digest('hex').slice(0, 16);
  return {
    pepper: createSecretKey(pepper),
    reasoningSigning: createSecretKey(derived('tokenhouse reasoning signatures')),
    reasoningEncryption: createSecretKey(derived('tokenhouse reasoning encryption')),
    fingerprints: createSecretKey(derived('tokenhouse request fingerprints')),
    demoPayments: createSecretKey(derived('tokenhouse demo payments')),
    signIn: createSecretKey(derived('tokenhouse sign-in')),
    webhooks: createSecretKey(derived('tokenhouse webhook endpoints')),
    receipts: createSecretKey(derived('tokenhouse receipts')),
    promptCaches: createSecretKey(derived('tokenhouse prompt caches')),
    id,
    source,
  };
}

function readSecret(file: string, warn: (message: string) => void): string | undefined {
  let descriptor: number;
  try {
    descriptor = openSync(file, 'r');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new Error(`${file} cannot be read: ${(error as Error).message}`, { cause: error });
  }
  try {
    const { mode } = fstatSync(descriptor);
    if (process.platform !== 'win32' && (mode & 0o077) !== 0) {
      chmodSync(file, 0o600);
      warn(
        `${file} was readable by other users (mode ${(mode & 0o777).toString(8)}); its mode is 600 now. If it may have been copied, create new keys.`,
      );
    }
    const text = readFileSync(descriptor, 'utf8').trim();
    refuseWeak(text, file);
    return text;
  } finally {
    closeSync(descriptor);
  }
}

/** Writes the whole file under a temporary name first, then renames it unless the name is taken; false if it is. */
function createSecret(file: string): boolean {
  const draft = `${file}.${process.pid}.${randomBytes(4).toString('hex')}`;
  const descriptor = openSync(draft, 'wx', 0o600);
  try {
    writeSync(descriptor, `${randomBytes(32).toString('base64url')}\n`);
    fsyncSync(descriptor); // a key made with it may be in the database a moment later
    closeSync(descriptor);
    linkSync(draft, file);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  } finally {
    unlinkSync(draft);
  }
}

function refuseWeak(text: string, where: string): void {
  if (text.length >= secretLengthMin) return;
  throw new SecretError(
    `${where} is shorter than ${secretLengthMin} characters. Use a random one, for example from \`openssl rand -base64 32\`` +
      (where === 'TOKENHOUSE_SECRET'
        ? '.'
        : ', or restore the file from a backup: existing keys need the secret that they were created with.'),
  );
}
