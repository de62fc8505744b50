import { constants, deflateRawSync } from 'node:zlib';

export interface PdfOptions {
  /** Bytes that one more page inflates to: blanks, a thousandfold smaller in the file. */
  readonly bombBytes?: number;
  /** An entry of the trailer that says that it is encrypted. */
  readonly isEncrypted?: boolean;
}

/** A PDF with a page for each text; an empty text is a page without any, as a scan has it. */
export function pdfOf(pages: readonly string[], { bombBytes = 0, isEncrypted = false }: PdfOptions = {}): Buffer {
  const objects: Buffer[] = [];
  const add = (body: string | Buffer): number => objects.push(Buffer.from(body as string, 'latin1'));
  add('<< /Type /Catalog /Pages 2 0 R >>');
  add('');
  add('<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>');
  const kids: string[] = [];
  const page = (content: Buffer, filter: string): void => {
    const head = Buffer.from(`<< /Length ${content.length} ${filter} >>\nstream\n`);
    const stream = add(Buffer.concat([head, content, Buffer.from('\nendstream')]));
    const resources = '/MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >>';
    kids.push(`${add(`<< /Type /Page /Parent 2 0 R ${resources} /Contents ${stream} 0 R >>`)} 0 R`);
  };
  for (const text of pages) page(Buffer.from(text === '' ? '' : `BT /F1 24 Tf 72 720 Td (${text}) Tj ET`), '');
  if (bombBytes > 0) {
    const piece = deflateRawSync(Buffer.alloc(1_000_000, ' '), { finishFlush: constants.Z_FULL_FLUSH });
    const pieces = new Array<Buffer>(Math.ceil(bombBytes / 1_000_000)).fill(piece);
    const last = deflateRawSync(Buffer.alloc(0));
    page(Buffer.concat([Buffer.from([0x78, 0x9c]), ...pieces, last, Buffer.alloc(4)]), '/Filter /FlateDecode');
  }
  objects[1] = Buffer.from(`<< /Type /Pages /Count ${kids.length} /Kids [${kids.join(' ')}] >>`);
  const encryption = isEncrypted
    ? `/Encrypt << /Filter /Standard /V 1 /R 2 /O <${'00'.repeat(32)}> /U <${'11'.repeat(32)}> /P -4 >> /ID [<00> <00>]`
    : '';
  return assembled(objects, encryption);
}

/** 1,000 pages that draw a form, which draws itself again and again: 60 kB that keep a processor busy for many seconds. `salt` makes it another file. */
export function drawsItself(salt = ''): Buffer {
  const resources = '/Resources << /XObject << /X 3 0 R >> >>';
  const stream = (head: string, content: string): Buffer =>
    Buffer.from(`<< ${head} /Length ${content.length} >>\nstream\n${content}\nendstream`);
  const pages = Array.from({ length: 1_000 }, (_, index) => index + 5);
  return assembled([
    Buffer.from('<< /Type /Catalog /Pages 2 0 R >>'),
    Buffer.from(`<< /Type /Pages /Count ${pages.length} /Kids [${pages.map((page) => `${page} 0 R`).join(' ')}] >>`),
    stream(`/Type /XObject /Subtype /Form /BBox [0 0 1 1] ${resources}`, `${'/X Do '.repeat(40)}${salt}`),
    stream('', '/X Do'),
    ...pages.map(() => Buffer.from(`<< /Type /Page /Parent 2 0 R ${resources} /Contents 4 0 R >>`)),
  ]);
}

function assembled(objects: readonly Buffer[], encryption = ''): Buffer {
  const parts = [Buffer.from('%PDF-1.4\n')];
  let at = parts[0]!.length;
  const places = objects.map((body, index) => {
    const whole = Buffer.concat([Buffer.from(`${index + 1} 0 obj\n`), body, Buffer.from('\nendobj\n')]);
    const place = at;
    at += whole.length;
    parts.push(whole);
    return `${String(place).padStart(10, '0')} 00000 n \n`;
  });
  const size = objects.length + 1;
  const table = `xref\n0 ${size}\n0000000000 65535 f \n${places.join('')}`;
  parts.push(Buffer.from(`${table}trailer\n<< /Size ${size} /Root 1 0 R ${encryption} >>\nstartxref\n${at}\n%%EOF`));
  return Buffer.concat(parts);
}
