import { existsSync } from 'node:fs';

import { breakable } from './paper.ts';
import type { Column, Fact, Paper, Table } from './paper.ts';

/**
 * Where systems install a font that covers many scripts. Helvetica, which every PDF reader has, covers only Western European letters; this
 * program bundles no font.
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
  /** A TrueType or OpenType font for characters missing from Helvetica; undefined: these are printed as `?`. */
  readonly font: string | undefined;
}

const margin = 48;
const size = 9;
const regular = 'Helvetica';
const bold = 'Helvetica-Bold';

/**
 * Renders the document as a tagged PDF with a title and selectable, searchable text. The same document and font produce the same bytes.
 * Rejects when the font cannot be read.
 */
export async function paperPdf(paper: Paper, { font }: PdfOptions): Promise<Uint8Array> {
  // Loaded with the first document: it takes 27 MB, and most processes print none.
  const { default: PdfDocument } = await import('pdfkit');
  const at = new Date(paper.issuedAt);
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
      ...(paper.author === null ? {} : { Author: paper.author }),
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
  page.parties(paper.parties);
  for (const table of paper.tables) page.table(table);
  page.totals(paper.totals);
  for (const note of paper.notes) page.line(note);
  if (letters.isIncomplete)
    page.line(
      'Letters that are missing in the font of this file are printed as "?". The HTML page of the same document shows them.',
    );
  page.end(paper.number);
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

/** WinAnsi: the characters of the fonts built into every reader. */
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

  /** Selects the font that has the glyphs of a text, and returns the text to print in it. */
  set(text: string, name: string, points: number): string {
    const clean = text.normalize('NFC').replace(/\s+/gu, ' ');
    if (western.test(clean) || this.#file === undefined) {
      this.#pdf.font(name, points);
      return this.#printed(clean, (letter) => western.test(letter));
    }
    if (this.#glyphs === undefined) this.#pdf.registerFont('further', this.#file);
    this.#pdf.font('further', points);
    // pdfkit's parsed font: fontkit's object, which its types do not mention.
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

interface Look {
  readonly name: string;
  readonly points: number;
  readonly x: number;
  readonly width: number;
  readonly align?: 'left' | 'right';
}

const gap = 10;
const cellPadding = 3;
/** Font sizes to try in turn for a table that is too wide for the page. */
const tableSizes = [size, 8, 7, 6] as const;
/** Shares of the page width that a column of words can claim; longer text is broken, if necessary inside a name. */
const wordsMax = { least: 0.2, all: 0.3 } as const;

/** Writes from top to bottom, across as many pages as needed, and marks up the structure for screen readers. */
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
    this.#room(4 * points);
    this.#write(this.#root, kind, text, { name: bold, points, x: margin, width: this.#width });
    this.#pdf.y += 3;
  }

  line(text: string): void {
    this.#room(2 * size);
    this.#write(this.#root, 'P', text, { name: regular, points: size, x: margin, width: this.#width });
  }

  facts(facts: readonly Fact[]): void {
    const labels = Math.max(...facts.map(([label]) => this.#widthOf(label, bold, size))) + gap;
    for (const fact of facts) this.#pair(fact, [margin, labels], [margin + labels, this.#width - labels], 'left', size);
    this.#pdf.y += size;
  }

  /** Prints the parties side by side. */
  parties(parties: Paper['parties']): void {
    const width = this.#width / Math.max(2, parties.length) - gap;
    const look = { name: regular, points: size, width };
    const heights = parties.map(({ lines }) => 24 + lines.reduce((sum, line) => sum + this.#height(line, look), 0));
    this.#room(Math.min(Math.max(...heights), this.#pdf.page.height - 2 * margin));
    const top = this.#pdf.y;
    const ends = parties.map(({ heading, lines }, index) => {
      const x = margin + index * (width + gap);
      this.#pdf.y = top;
      this.#write(this.#root, 'H2', heading, { name: bold, points: 11, x, width });
      this.#pdf.y += 2;
      for (const line of lines) this.#write(this.#root, 'P', line, { ...look, x });
      return this.#pdf.y;
    });
    this.#pdf.y = Math.max(...ends) + size;
  }

  /** Prints totals on the right, amounts aligned, the last one in bold. */
  totals(totals: readonly Fact[]): void {
    const points = size + 2;
    const widest = (column: 0 | 1): number =>
      Math.max(...totals.map((fact) => this.#widthOf(fact[column], bold, points))) + gap;
    const amounts = widest(1);
    const labels = Math.min(widest(0), this.#width - amounts);
    const x = margin + this.#width - amounts - labels;
    this.#pdf.y += size / 2;
    this.#room(totals.length * 2 * points);
    for (const [index, fact] of totals.entries()) {
      const isLast = index === totals.length - 1;
      if (isLast) {
        this.#rule(x, labels + amounts);
        this.#pdf.y += 2;
      }
      this.#pair(fact, [x, labels], [x + labels, amounts], 'right', points, isLast ? bold : regular);
    }
    this.#pdf.y += size;
  }

  /** Prints a table, repeating the head on each page that it continues on. */
  table({ caption, columns, rows }: Table): void {
    this.heading('H2', caption, 11);
    const table = this.#pdf.struct('Table', { title: caption });
    this.#root.add(table);
    const { points, widths } = this.#fit(columns, rows);
    const heads = columns.map(({ head }) => head);
    const heightOf = (cells: readonly string[], name: string): number =>
      Math.max(points, ...cells.map((text, index) => this.#height(text, { name, points, width: widths[index]! }))) +
      2 * cellPadding;
    const headHeight = heightOf(heads, bold);
    const row = (cells: readonly string[], kind: 'TH' | 'TD', height: number, write: CellWriter): void => {
      const top = this.#pdf.y;
      let x = margin;
      for (const [index, text] of cells.entries()) {
        const width = widths[index]!;
        const look = { name: kind === 'TH' ? bold : regular, points, x, width };
        this.#pdf.y = top + cellPadding;
        write(kind, text, columns[index]!.kind === 'figure' ? { ...look, align: 'right' } : look);
        x += width + gap;
      }
      this.#pdf.y = top + height;
      this.#rule(margin, this.#width, kind === 'TH' ? 1 : 0.4);
    };
    const inTable = (cells: readonly string[], kind: 'TH' | 'TD', height: number): void => {
      const element = this.#pdf.struct('TR');
      table.add(element);
      row(cells, kind, height, (cell, text, look) => this.#write(element, cell, text, look));
      element.end();
    };
    this.#room(headHeight + (rows[0] === undefined ? 0 : heightOf(rows[0], regular)));
    inTable(heads, 'TH', headHeight);
    for (const cells of rows) {
      const height = heightOf(cells, regular);
      if (this.#room(height)) {
        // Visual only: screen readers already have the head.
        this.#pdf.markContent('Artifact', { type: 'Pagination' });
        row(heads, 'TH', headHeight, (_, text, look) => this.#print(text, look));
        this.#pdf.endMarkedContent();
      }
      inTable(cells, 'TD', height);
    }
    table.end();
    this.#pdf.y += size;
  }

  /** Numbers the pages and closes the file. */
  end(number: string): void {
    const pdf = this.#pdf;
    this.#root.end();
    const { start, count } = pdf.bufferedPageRange();
    for (let index = 0; index < count; index++) {
      pdf.switchToPage(start + index);
      // Written into the margin, where pdfkit would start a new page for text that it considers too low.
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

  /**
   * Computes column widths at the largest font size that needs no unwanted breaks. Unbreakable columns get the width they need; words share
   * the rest, each at least as wide as its longest part.
   */
  #fit(columns: readonly Column[], rows: readonly (readonly string[])[]) {
    const available = this.#width - gap * (columns.length - 1);
    for (const points of tableSizes) {
      const needs = columns.map(({ head, kind }, index) => {
        const cells = rows.map((cells) => cells[index]!);
        const widest = (texts: readonly string[], name: string): number =>
          Math.max(0, ...texts.map((text) => this.#widthOf(text, name, points)));
        const ofHead = widest(breakable(head), bold);
        const all = Math.max(widest(cells, regular), ofHead);
        return kind === 'words'
          ? {
              least: Math.max(Math.min(widest(cells.flatMap(breakable), regular), wordsMax.least * available), ofHead),
              all: Math.min(all, wordsMax.all * available),
              grows: true,
            }
          : { least: all, all, grows: false };
      });
      const least = needs.reduce((sum, need) => sum + need.least, 0);
      if (least > available && points !== tableSizes.at(-1)) continue;
      const input = needs.reduce((sum, need) => sum + Math.max(0, need.all - need.least), 0);
      const rest = Math.max(0, available - least);
      const growing = needs.filter(({ grows }) => grows).length;
      const share = (need: (typeof needs)[number]): number => {
        if (rest <= input) return input === 0 ? 0 : (rest * Math.max(0, need.all - need.least)) / input;
        // Surplus width goes to words, so that figures end at the right edge.
        return Math.max(0, need.all - need.least) + (need.grows ? (rest - input) / growing : 0);
      };
      // If it still does not fit, all columns shrink and text is broken where necessary.
      const scale = least > available ? available / least : 1;
      return { points, widths: needs.map((need) => need.least * scale + share(need)) };
    }
    throw new Error('a table has no size');
  }

  /** Prints a label and its text, as one paragraph of two columns. */
  #pair(
    [label, value]: Fact,
    [labelX, labelWidth]: readonly [number, number],
    [valueX, valueWidth]: readonly [number, number],
    align: 'left' | 'right',
    points: number,
    name?: string,
  ): void {
    const looks = [
      { name: name ?? bold, points, x: labelX, width: labelWidth, align: 'left' as const },
      { name: name ?? regular, points, x: valueX, width: valueWidth, align },
    ] as const;
    const height = Math.max(this.#height(label, looks[0]), this.#height(value, looks[1]));
    this.#room(height);
    const top = this.#pdf.y;
    const element = this.#pdf.struct('P', {}, () => {
      this.#print(label, looks[0]);
      this.#pdf.y = top;
      this.#print(value, looks[1]);
    });
    this.#root.add(element);
    element.end();
    this.#pdf.y = top + height + 1;
  }

  #rule(x: number, width: number, thickness = 0.8): void {
    const { y } = this.#pdf;
    this.#pdf.markContent('Artifact', { type: 'Layout' });
    this.#pdf
      .moveTo(x, y)
      .lineTo(x + width, y)
      .lineWidth(thickness)
      .strokeColor('#888888')
      .stroke();
    this.#pdf.endMarkedContent();
    this.#pdf.y = y + thickness;
  }

  /** Ensures room for this height; true if that began a new page. */
  #room(height: number): boolean {
    const { page } = this.#pdf;
    if (this.#pdf.y + height <= page.height - margin) return false;
    this.#pdf.addPage();
    this.#pdf.y = margin;
    return true;
  }

  #write(parent: PDFKit.PDFStructureElement, kind: string, text: string, look: Look): void {
    const element = this.#pdf.struct(kind, {}, () => this.#print(text, look));
    parent.add(element);
    element.end();
  }

  /** Prints line by line: line breaks are decided here, not by pdfkit, which breaks long names anywhere. */
  #print(text: string, look: Look): void {
    const { x, width, align = 'left' } = look;
    for (const line of this.#lines(text, look)) {
      const printed = this.#letters.set(line, look.name, look.points);
      const at = align === 'right' ? x + width - this.#pdf.widthOfString(printed) : x;
      const { y } = this.#pdf;
      this.#pdf.text(printed, at, y, { lineBreak: false });
      this.#pdf.y = y + this.#lineHeight(look);
    }
  }

  #lines(text: string, { name, points, width }: Pick<Look, 'name' | 'points' | 'width'>): readonly string[] {
    const lines: string[] = [];
    let line = '';
    // A small tolerance, so that text that was measured to fit does fit.
    const fits = (candidate: string): boolean => this.#widthOf(candidate.trimEnd(), name, points) <= width + 0.01;
    for (const part of breakable(text)) {
      if (fits(line + part)) {
        line += part;
        continue;
      }
      if (line !== '') lines.push(line.trimEnd());
      line = part;
      while (!fits(line)) {
        // The part is longer than a line.
        const letters = [...line];
        let taken = letters.length - 1;
        while (taken > 1 && !fits(letters.slice(0, taken).join(''))) taken--;
        lines.push(letters.slice(0, taken).join(''));
        line = letters.slice(taken).join('');
        if (letters.length === 1) break;
      }
    }
    if (line.trimEnd() !== '') lines.push(line.trimEnd());
    return lines;
  }

  #widthOf(text: string, name: string, points: number): number {
    const printed = this.#letters.set(text.trimEnd(), name, points);
    return printed === '' ? 0 : this.#pdf.widthOfString(printed);
  }

  #height(text: string, look: Pick<Look, 'name' | 'points' | 'width'>): number {
    return this.#lines(text, look).length * this.#lineHeight(look);
  }

  /** The same for every font, so that adjacent cells share a baseline. */
  #lineHeight({ points }: Pick<Look, 'points'>): number {
    return points * 1.25;
  }
}

type CellWriter = (kind: 'TH' | 'TD', text: string, look: Look) => void;
