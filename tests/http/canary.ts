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
 * Finds canaries in what a process has written: as they are, in any fragment of 12 characters, in hex, UTF-16 and base64
 * at each of its three offsets (reliability part 4). Upper and lower case are the same, except in base64.
 */
export function sightings(canaries: readonly Canary[], hay: ReadonlyMap<string, Uint8Array>): readonly Sighting[] {
  const found: Sighting[] = [];
  for (const [where, bytes] of hay) {
    const exact = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1');
    const folded = exact.toLowerCase();
    for (const { place, text } of canaries) {
      const hit = formsOf(text).find(({ needle, isExact }) => (isExact ? exact : folded).includes(needle));
      if (hit !== undefined) found.push({ place, where, form: hit.form });
    }
  }
  return found;
}

interface Form {
  readonly form: string;
  readonly needle: string;
  readonly isExact: boolean;
}

const fragmentLength = 12;

function formsOf(text: string): readonly Form[] {
  const forms: Form[] = [];
  for (let at = 0; at + fragmentLength <= text.length; at++) {
    const fragment = text.slice(at, at + fragmentLength);
    forms.push({ form: 'text', needle: fragment.toLowerCase(), isExact: false });
  }
  forms.push({ form: 'hex', needle: Buffer.from(text).toString('hex'), isExact: false });
  forms.push({ form: 'utf-16', needle: Buffer.from(text, 'utf16le').toString('latin1').toLowerCase(), isExact: false });
  for (let offset = 0; offset < 3; offset++) {
    // The first and last characters depend on the neighbours.
    const encoded = Buffer.from('~'.repeat(offset) + text).toString('base64');
    forms.push({ form: 'base64', needle: encoded.slice(offset === 0 ? 0 : 4, -4), isExact: true });
  }
  return forms;
}
