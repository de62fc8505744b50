import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

/** Where a text was put, and what to look for afterwards. */
export interface Canary {
  readonly place: string;
  readonly text: string;
}

export interface Sighting {
  readonly place: string;
  readonly where: string;
  readonly form: string;
}

/** Makes texts that occur nowhere else: 32 random hex digits for each place. */
export class Canaries {
  readonly all: Canary[] = [];

  at(place: string): string {
    const text = randomBytes(16).toString('hex');
    this.all.push({ place, text });
    return text;
  }
}

/** Every file below a folder, by its path, as it lies on the disk. */
export function filesBelow(folder: string): ReadonlyMap<string, Buffer> {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return new Map(
    files.map((entry) => {
      const path = join(entry.parentPath, entry.name);
      return [path, readFileSync(path)];
    }),
  );
}

/**
 * Finds canaries in what a process has written: as they are, in any fragment of 12 characters, in hex, UTF-16, the
 * escapes of JSON and of URLs, and base64 at each of its three offsets (reliability part 4). Upper and lower case are the same, except in base64.
 */
export function sightings(canaries: readonly Canary[], hay: ReadonlyMap<string, Uint8Array>): readonly Sighting[] {
  const forms = canaries.map(({ place, text }) => ({ place, forms: formsOf(text) }));
  const found: Sighting[] = [];
  for (const [where, bytes] of hay) {
    const runs = runsOf(bytes);
    for (const { place, forms: own } of forms) {
      const hit = own.find(({ in: alphabet, needle }) => runs[alphabet].includes(needle));
      if (hit !== undefined) found.push({ place, where, form: hit.form });
    }
  }
  return found;
}

/** Texts of a canary are hex digits, so that only runs of few kinds of characters need to be looked at: gigabytes would do. */
const alphabets = {
  hex: /[0-9a-f]{12,}/g,
  utf16: /(?:[0-9a-f]\0){12,}/g,
  json: /(?:\\u00[0-9a-f]{2}){12,}/g,
  url: /(?:%[0-9a-f]{2}){12,}/g,
  base64: /[A-Za-z0-9+/]{16,}/g,
} as const;
type Alphabet = keyof typeof alphabets;

function runsOf(bytes: Uint8Array): Readonly<Record<Alphabet, string>> {
  const exact = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1');
  const folded = exact.toLowerCase();
  const of = (alphabet: Alphabet): string =>
    ((alphabet === 'base64' ? exact : folded).match(alphabets[alphabet]) ?? []).join(' ');
  return { hex: of('hex'), utf16: of('utf16'), json: of('json'), url: of('url'), base64: of('base64') };
}

interface Form {
  readonly form: string;
  readonly needle: string;
  readonly in: Alphabet;
}

const fragmentLength = 12;

function formsOf(text: string): readonly Form[] {
  assert.match(text, /^[0-9a-f]+$/);
  const forms: Form[] = [];
  for (let at = 0; at + fragmentLength <= text.length; at++)
    forms.push({ form: 'text', needle: text.slice(at, at + fragmentLength), in: 'hex' });
  const escaped = (prefix: string): string =>
    [...Buffer.from(text)].map((byte) => prefix + byte.toString(16).padStart(2, '0')).join('');
  forms.push({ form: 'hex', needle: escaped(''), in: 'hex' });
  forms.push({ form: 'utf-16', needle: Buffer.from(text, 'utf16le').toString('latin1'), in: 'utf16' });
  forms.push({ form: 'escapes of JSON', needle: escaped('\\u00'), in: 'json' });
  forms.push({ form: 'escapes of URLs', needle: escaped('%'), in: 'url' });
  for (let offset = 0; offset < 3; offset++) {
    // The first and last characters depend on the neighbours.
    const encoded = Buffer.from('~'.repeat(offset) + text).toString('base64');
    forms.push({ form: 'base64', needle: encoded.slice(offset === 0 ? 0 : 4, -4), in: 'base64' });
  }
  return forms;
}
