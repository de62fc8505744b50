import { existsSync } from 'node:fs';

import type { Invoice } from '../store/invoice-queries.ts';
import { paperOf, readData } from './document.ts';
import type { Fact, Table } from './document.ts';

/**
 * Where systems keep a font with many scripts. Helvetica, which every reader of PDF has, knows Western European letters
 * alone; no font comes with this program.
 */
const systemFonts = [
  '/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf',
  '/usr/share/fonts/dejavu/DejaVuSans.ttf',
  '/usr/share/fonts/dejavu-sans-fonts/DejaVuSans.ttf',
  '/usr/share/fonts/TTF/DejaVuSans.ttf',
  '/usr/share/fonts/truetype/noto/NotoSans-Regular.ttf',
  '/usr/share/fonts/noto/NotoSans-Regular.ttf',
  '/System/Library/Fonts/Supplemental/Arial Unicode.ttf',
  'C:\\Windows\\Fonts\\arial.ttf',
];

export const systemFont = (): string | undefined => systemFonts.find((file) => existsSync(file));

export interface PdfOptions {
  /** A TrueType or OpenType font for what Helvetica does not have; undefined: what it does not have is printed as `?`. */
  readonly font: string | undefined;
}

const margin = 48;
const size = 9;
const regular = 'Helvetica';
const bold = 'Helvetica-Bold';

/**
 * The document as a tagged PDF, with a title, and with text that can be selected and searched. The same document and the
 * same font make the same bytes. Rejects when the font cannot be read.
 */
export async function invoicePdf(invoice: Invoice, { font }: PdfOptions): Promise<Uint8Array> {
  // Loaded with the first document: it takes 27 MB, and most processes print none.
  const { default: PdfDocument } = await import('pdfkit');
  const paper = paperOf(invoice);
  const { seller } = readData(invoice);
  const at = new Date(invoice.issuedAt);
  const pdf = new PdfDocument({
    size: 'A4',
    margin,
    pdfVersion: '1.7',
    tagged: true,
    lang: 'en',
    displayTitle: true,
    bufferPages: true,
    info: {
      Title: paper.title,
      ...(seller === null ? {} : { Author: seller.name }),
      Creator: 'Tokenhouse',
      Producer: 'Tokenhouse',
      CreationDate: at,
      ModDate: at,
    },
  });
  const bytes = collected(pdf);
  const letters = new Letters(pdf, font);
  const page = new Page(pdf, letters);
  page.heading('H1', paper.title, 16);
  page.facts(paper.facts);
  for (const { heading, lines } of paper.parties) {
    page.heading('H2', heading, 11);
    for (const line of lines) page.line(line);
  }
  for (const table of paper.tables) page.table(table);
  page.totals(paper.totals);
  for (const note of paper.notes) page.line(note);
  if (letters.isIncomplete)
    page.line(
      'Letters that the font of this file does not have are printed as "?". The HTML page of the same document has them.',
    );
  page.end(invoice.number);
  return await bytes;
}

function collected(pdf: PDFKit.PDFDocument): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    pdf.on('data', (chunk: Buffer) => chunks.push(chunk));
    pdf.on('end', () => resolve(Buffer.concat(chunks)));
    pdf.on('error', reject);
  });
}

/** WinAnsi: what the fonts have that every reader brings along. */
const western = /^[\u0020-\u007e\u00a0-\u00ff€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]*$/;

interface Glyphs {
  hasGlyphForCodePoint(codePoint: number): boolean;
}

/** Chooses the font of each text. */
class Letters {
  readonly #pdf: PDFKit.PDFDocument;
  readonly #file: string | undefined;
  #glyphs: Glyphs | undefined;
  isIncomplete = false;

  constructor(pdf: PDFKit.PDFDocument, file: string | undefined) {
    this.#pdf = pdf;
    this.#file = file;
  }

  /** Makes the font that has the letters of a text the current one, and answers with what is to be printed in it. */
  set(text: string, name: string, points: number): string {
    const clean = text.normalize('NFC').replace(/\s+/gu, ' ');
    if (western.test(clean) || this.#file === undefined) {
      this.#pdf.font(name, points);
      return this.#printed(clean, (letter) => western.test(letter));
    }
    if (this.#glyphs === undefined) this.#pdf.registerFont('further', this.#file);
    this.#pdf.font('further', points);
    // What pdfkit keeps of a font that it has read: fontkit's object, which its types do not mention.
    this.#glyphs ??= (this.#pdf as unknown as { readonly _font: { readonly font: Glyphs } })._font.font;
    const glyphs = this.#glyphs;
    return this.#printed(clean, (letter) => glyphs.hasGlyphForCodePoint(letter.codePointAt(0)!));
  }

  #printed(text: string, has: (letter: string) => boolean): string {
    let printed = '';
    for (const letter of text) {
      const isThere = has(letter);
      if (!isThere) this.isIncomplete = true;
      printed += isThere ? letter : '?';
    }
    return printed;
  }
}

/** Writes from the top to the bottom, on as many pages as it takes, and says to readers of the screen what is what. */
class Page {
  readonly #pdf: PDFKit.PDFDocument;
  readonly #letters: Letters;
  readonly #root: PDFKit.PDFStructureElement;
  readonly #width: number;

  constructor(pdf: PDFKit.PDFDocument, letters: Letters) {
    this.#pdf = pdf;
    this.#letters = letters;
    this.#root = pdf.struct('Document');
    pdf.addStructure(this.#root);
    this.#width = pdf.page.width - 2 * margin;
  }

  heading(kind: 'H1' | 'H2', text: string, points: number): void {
    this.#pdf.y += points / 2;
    this.#room(3 * points);
    this.#write(this.#root, kind, text, { name: bold, points, x: margin, width: this.#width });
    this.#pdf.y += 3;
  }

  line(text: string): void {
    this.#room(2 * size);
    this.#write(this.#root, 'P', text, { name: regular, points: size, x: margin, width: this.#width });
  }

  facts(facts: readonly Fact[]): void {
    for (const [label, value] of facts) this.line(`${label}: ${value}`);
  }

  totals(totals: readonly Fact[]): void {
    this.#pdf.y += size;
    for (const [index, [label, value]] of totals.entries()) {
      this.#room(2 * size);
      this.#write(this.#root, 'P', `${label}: ${value}`, {
        name: index === totals.length - 1 ? bold : regular,
        points: size + 2,
        x: margin,
        width: this.#width,
        align: 'right',
      });
    }
    this.#pdf.y += size;
  }

  table({ caption, head, rows, words, widths }: Table): void {
    this.heading('H2', caption, 11);
    const table = this.#pdf.struct('Table', { title: caption });
    this.#root.add(table);
    const all = widths.reduce((sum, width) => sum + width, 0);
    const columns = widths.map((width) => (width / all) * this.#width);
    const row = (cells: readonly string[], kind: 'TH' | 'TD'): void => {
      const name = kind === 'TH' ? bold : regular;
      const gap = 6;
      const heights = cells.map((text, column) => {
        const printed = this.#letters.set(text, name, size);
        return printed === '' ? 0 : this.#pdf.heightOfString(printed, { width: columns[column]! - gap });
      });
      const height = Math.max(...heights, size) + 4;
      this.#room(height);
      const top = this.#pdf.y;
      const element = this.#pdf.struct('TR');
      table.add(element);
      let x = margin;
      for (const [column, text] of cells.entries()) {
        this.#pdf.y = top;
        this.#write(element, kind, text, {
          name,
          points: size,
          x,
          width: columns[column]! - gap,
          align: column < words ? 'left' : 'right',
        });
        x += columns[column]!;
      }
      element.end();
      this.#pdf.y = top + height;
    };
    row(head, 'TH');
    for (const cells of rows) row(cells, 'TD');
    table.end();
    this.#pdf.y += size;
  }

  /** Numbers the pages, and closes the file. */
  end(number: string): void {
    const pdf = this.#pdf;
    this.#root.end();
    const { start, count } = pdf.bufferedPageRange();
    for (let index = 0; index < count; index++) {
      pdf.switchToPage(start + index);
      // Into the margin, where a text that pdfkit thinks too low would begin another page.
      pdf.page.margins.bottom = 0;
      pdf.markContent('Artifact', { type: 'Pagination' });
      pdf.font(regular, 8).text(`${number}, page ${index + 1} of ${count}`, margin, pdf.page.height - 32, {
        width: this.#width,
        align: 'right',
        lineBreak: false,
      });
      pdf.endMarkedContent();
    }
    pdf.end();
  }

  #room(height: number): void {
    const { page } = this.#pdf;
    if (this.#pdf.y + height <= page.height - margin) return;
    this.#pdf.addPage();
    this.#pdf.y = margin;
  }

  #write(
    parent: PDFKit.PDFStructureElement,
    kind: string,
    text: string,
    look: {
      readonly name: string;
      readonly points: number;
      readonly x: number;
      readonly width: number;
      readonly align?: 'left' | 'right';
    },
  ): void {
    const element = this.#pdf.struct(kind, {}, () => {
      const printed = this.#letters.set(text, look.name, look.points);
      if (printed !== '')
        this.#pdf.text(printed, look.x, this.#pdf.y, { width: look.width, align: look.align ?? 'left' });
    });
    parent.add(element);
    element.end();
  }
}
