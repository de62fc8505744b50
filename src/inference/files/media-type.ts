const headBytes = 512;

/**
 * Finds out what a file is from its bytes, as they pass by. What the client says of its type counts for nothing; the ending of
 * the name decides only which kind of text a text is called, which changes nothing about how it is treated.
 */
export class TypeSniffer {
  #head = Buffer.alloc(0);
  #length = 0;
  readonly #decoder = new TextDecoder('utf-8', { fatal: true });
  #isText = true;

  push(chunk: Uint8Array): void {
    if (this.#head.length < headBytes) {
      this.#head = Buffer.concat([this.#head, chunk.subarray(0, headBytes - this.#head.length)]);
    }
    this.#length += chunk.length;
    if (!this.#isText) return;
    try {
      // No text has a NUL in it, and what follows a wrong byte need not be looked at.
      if (chunk.includes(0)) this.#isText = false;
      else this.#decoder.decode(chunk, { stream: true });
    } catch {
      this.#isText = false;
    }
  }

  get length(): number {
    return this.#length;
  }

  /** After the last chunk. */
  mediaType(name: string): string {
    const head = this.#head;
    const begins = (text: string, at = 0): boolean =>
      head.subarray(at, at + text.length).equals(Buffer.from(text, 'latin1'));
    if (begins('\x89PNG\r\n\x1a\n')) return 'image/png';
    if (begins('\xff\xd8\xff')) return 'image/jpeg';
    if (begins('GIF87a') || begins('GIF89a')) return 'image/gif';
    if (begins('RIFF') && begins('WEBP', 8)) return 'image/webp';
    if (begins('%PDF-')) return 'application/pdf';
    if (!this.#isText || !this.#endsWhole()) return 'application/octet-stream';
    return textTypes[/\.([a-z]+)$/i.exec(name)?.[1]?.toLowerCase() ?? ''] ?? 'text/plain';
  }

  #endsWhole(): boolean {
    try {
      this.#decoder.decode();
      return true;
    } catch {
      return false;
    }
  }
}

/** Kinds of text that have a name of their own; all are read as text. */
const textTypes: Readonly<Record<string, string>> = {
  csv: 'text/csv',
  json: 'application/json',
  markdown: 'text/markdown',
  md: 'text/markdown',
};

export type MediaKind = 'image' | 'pdf' | 'text' | 'other';

/** What can be done with a file in a request. */
export function kindOf(mediaType: string): MediaKind {
  if (mediaType.startsWith('image/')) return 'image';
  if (mediaType === 'application/pdf') return 'pdf';
  return mediaType.startsWith('text/') || mediaType === 'application/json' ? 'text' : 'other';
}

/** For a file that came without a name. */
export const endingOf = (mediaType: string): string => endings[mediaType] ?? '';

const endings: Readonly<Record<string, string>> = {
  'application/json': '.json',
  'application/pdf': '.pdf',
  'image/gif': '.gif',
  'image/jpeg': '.jpg',
  'image/png': '.png',
  'image/webp': '.webp',
  'text/csv': '.csv',
  'text/markdown': '.md',
  'text/plain': '.txt',
};
