const headBytes = 512;

/**
 * Detects the type of a file from its bytes, as they pass by. The type that the client states is ignored; the extension only decides which
 * text type a text is labelled with, which does not change how it is treated.
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
      // No text contains a NUL, and after an invalid byte the rest need not be checked.
      if (chunk.includes(0)) this.#isText = false;
      else this.#decoder.decode(chunk, { stream: true });
    } catch {
      this.#isText = false;
    }
  }

  get length(): number {
    return this.#length;
  }

  /** Returns the type, after the last chunk. */
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

/** Text types with a name of their own; all are read as text. */
const textTypes: Readonly<Record<string, string>> = {
  csv: 'text/csv',
  json: 'application/json',
  markdown: 'text/markdown',
  md: 'text/markdown',
};

export type MediaKind = 'image' | 'pdf' | 'text' | 'other';

/** What a file can be used as in a request. */
export function kindOf(mediaType: string): MediaKind {
  if (mediaType.startsWith('image/')) return 'image';
  if (mediaType === 'application/pdf') return 'pdf';
  return mediaType.startsWith('text/') || mediaType === 'application/json' ? 'text' : 'other';
}

/** The extension for a file that came without a name. */
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
