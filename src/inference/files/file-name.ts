/** Characters that change the direction of text, so that `gpj.exe` reads as `exe.jpg`. */
const bidi = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;
const bytesMax = 255;

/**
 * Returns the client's name of a file, as a label: the last segment of a path, without control characters and characters that change the
 * direction of text, at most 255 bytes. It is never used as a path (reliability §3.4). Empty if nothing is left.
 */
export function cleanName(text: string | undefined): string {
  const last = (text ?? '').toWellFormed().split(/[/\\]/).at(-1) ?? '';
  const shown = last
    .replace(/\p{Cc}/gu, '')
    .replace(bidi, '')
    .trim();
  const name = shortened(shown);
  return name === '.' || name === '..' ? '' : name;
}

/** The extension stays: people recognize files by it. */
function shortened(name: string): string {
  if (Buffer.byteLength(name) <= bytesMax) return name;
  const [, ending = ''] = /(\.[A-Za-z0-9]{1,16})$/.exec(name) ?? [];
  let kept = '';
  let bytes = ending.length;
  for (const character of name.slice(0, name.length - ending.length)) {
    bytes += Buffer.byteLength(character);
    if (bytes > bytesMax) break;
    kept += character;
  }
  return kept + ending;
}

/** `Content-Disposition` of a download: a visible ASCII version of the name, and the name itself in the form of RFC 8187. */
export function attachment(name: string): string {
  const ascii = name.replace(/[^\x20-\x7e]/g, '_').replace(/["\\%]/g, '_');
  const extended = [...Buffer.from(name)]
    .map((byte) => {
      const character = String.fromCharCode(byte);
      return /[A-Za-z0-9.\-_~]/.test(character) ? character : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
    })
    .join('');
  return `attachment; filename="${ascii}"; filename*=UTF-8''${extended}`;
}
