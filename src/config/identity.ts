import { createHash } from 'node:crypto';
import { Secret } from './secret.ts';

/** Returns a value that is equal for configurations with equal content, including secrets, which it does not reveal. */
export function identityOf(value: unknown): string {
  const text = JSON.stringify(value, function (this: Readonly<Record<string, unknown>>, key, printed: unknown) {
    // `printed` has been through `toJSON`, which hides secrets.
    const member = this[key];
    if (member instanceof Secret) return { secret: member.reveal() };
    return typeof member === 'bigint' ? { integer: String(member) } : printed;
  });
  return createHash('sha256').update(text).digest('hex');
}
