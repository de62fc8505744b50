import { OperationError } from './operation.ts';

/** Maximum length of the whole address, as SMTP accepts it (RFC 5321 §4.5.3.1). */
export const mailAddressLengthMax = 254;

/**
 * The form of a user's email address, also valid in JSON Schema. One rule for every route and command that takes one, and no wider than the
 * sign-in rule (better-auth's, which is zod's): an address that passes it can be stored, mailed to, and signed in with. 64 letters, digits
 * and `_ ' + - .` before the `@`; domain names with a dot, of 63 letters, digits and hyphens each.
 */
export const mailAddressPattern =
  "^(?=.{6,254}$)(?=[^@]{1,64}@)(?!\\.)(?!.*\\.\\.)[A-Za-z0-9_'+.-]*[A-Za-z0-9_+-]" +
  '@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\\.)+[A-Za-z]{2,63}$';

const form = new RegExp(mailAddressPattern, 'u');

export const isMailAddress = (text: string): boolean => text.length <= mailAddressLengthMax && form.test(text);

/** Returns it in lower case, as stored. Throws OperationError for text that is not an address. */
export function checkedMailAddress(text: string): string {
  const address = text.toLowerCase();
  if (!isMailAddress(address)) throw new OperationError('This is not an e-mail address.');
  return address;
}
