/**
 * A process that reads one PDF and exits: bytes come in on standard input, text goes out on standard output. Whatever the file does to this
 * process, the service is another one (`pdf-text.ts` gives this one little memory and time, and no secrets).
 */
import '../../platform/stack-traces.ts';

import { once } from 'node:events';
import { getDocumentProxy } from 'unpdf';

/** The first line of the answer; after `text`, the text follows. */
export type PdfVerdict =
  | { readonly kind: 'text'; readonly pages: number }
  | { readonly kind: 'damaged' | 'encrypted' | 'too-many-pages' | 'too-long' | 'no-text'; readonly pages: number };

const pagesMax = Number(process.argv[2]);
const charactersMax = Number(process.argv[3]);

const chunks: Buffer[] = [];
for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
const { verdict, text } = await read(new Uint8Array(Buffer.concat(chunks)));
if (!process.stdout.write(`${JSON.stringify(verdict)}\n${text}`)) await once(process.stdout, 'drain');
process.exit(0);

async function read(data: Uint8Array): Promise<{ readonly verdict: PdfVerdict; readonly text: string }> {
  let pages = 0;
  const only = (kind: PdfVerdict['kind']) => ({ verdict: { kind, pages }, text: '' });
  try {
    const document = await getDocumentProxy(data, {
      // Nothing in the file is executed, looked up or fetched.
      isEvalSupported: false,
      useSystemFonts: false,
      disableFontFace: true,
      stopAtErrors: false,
      verbosity: 0,
    });
    pages = document.numPages;
    if (pages > pagesMax) return only('too-many-pages');
    const texts: string[] = [];
    let characters = 0;
    for (let number = 1; number <= pages; number++) {
      const page = await document.getPage(number);
      const { items } = await page.getTextContent();
      const lines: string[] = [];
      for (const item of items) if ('str' in item) lines.push(item.str, item.hasEOL ? '\n' : '');
      const text = lines.join('').toWellFormed().replaceAll('\0', '').trim();
      characters += text.length;
      if (characters > charactersMax) return only('too-long');
      texts.push(text);
      page.cleanup();
    }
    if (characters === 0) return only('no-text');
    return { verdict: { kind: 'text', pages }, text: texts.join('\n\n') };
  } catch (error) {
    return only((error as Error).name === 'PasswordException' ? 'encrypted' : 'damaged');
  }
}
