/** Markup, scripts, the other direction of writing, letters without a width, and words of wide letters, of that length: shown as they are. */
export const hostile = (length: number): string =>
  [
    `<img src=x class=hostile onerror=hacked=1>"'\u202Ertl\u200B\uFEFF`,
    'W'.repeat(60),
    '<script>hacked=1</script>',
    'W'.repeat(length),
  ]
    .join('')
    .slice(0, length);

export const hostileName = hostile(100);
