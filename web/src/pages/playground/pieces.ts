interface Piece {
  readonly isCode: boolean;
  /** Of code: its language, as the model names it. */
  readonly title: string;
  readonly text: string;
}

/** Code between fences of three backticks, and what is around it. The last fence may still be open. */
export function piecesOf(text: string): readonly Piece[] {
  const pieces: Piece[] = [];
  let isCode = false;
  for (const part of text.split(/^```/m)) {
    if (isCode) {
      const end = part.indexOf('\n');
      const title = (end < 0 ? part : part.slice(0, end)).trim();
      pieces.push({ isCode, title, text: end < 0 ? '' : part.slice(end + 1).replace(/\n$/, '') });
    } else if (part.trim() !== '') pieces.push({ isCode, title: '', text: part.replaceAll(/^\n+|\n+$/g, '') });
    isCode = !isCode;
  }
  return pieces;
}
