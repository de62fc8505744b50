import { readFileSync, writeFileSync } from 'node:fs';

/** Puts a section into a Markdown file: in the place of the one with the same title, else at the end. */
export function writeSection(file: string, title: string, text: string): void {
  const section = `## ${title}\n\n${text.trim()}\n`;
  const sections = readFileSync(file, 'utf8')
    .trim()
    .split(/\n(?=## )/);
  const place = sections.findIndex((other) => other.startsWith(`## ${title}\n`));
  if (place === -1) sections.push(section);
  else sections[place] = section;
  writeFileSync(file, `${sections.map((other) => other.trim()).join('\n\n')}\n`);
}
