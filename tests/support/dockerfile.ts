/** The instructions of a Dockerfile by stage, each on one line, without comments. The first of a stage is its `FROM`. */
export function stagesOf(text: string): ReadonlyMap<string, readonly string[]> {
  const stages = new Map<string, string[]>();
  let steps: string[] = [];
  for (const line of text
    .replaceAll(/^#.*\n/gm, '')
    .replaceAll(/\\\n\s*/g, '')
    .split('\n')
    .filter(Boolean)) {
    const stage = /^FROM (\S+) AS (\S+)$/.exec(line);
    if (stage !== null) stages.set(stage[2]!, (steps = []));
    steps.push(line);
  }
  return stages;
}

/** What `ENV` instructions among the steps set; values have no spaces. */
export const environmentOf = (steps: readonly string[]): Readonly<Record<string, string>> =>
  Object.fromEntries(
    steps
      .filter((step) => step.startsWith('ENV '))
      .flatMap((step) => step.slice(4).trim().split(/\s+/))
      .map((pair) => pair.split('=') as [string, string]),
  );

/** The words of an instruction in the form of a list, such as `CMD ["serve"]`. */
export const wordsOf = (steps: readonly string[], instruction: string): readonly string[] =>
  JSON.parse(steps.find((step) => step.startsWith(`${instruction} [`))!.slice(instruction.length)) as readonly string[];

/** Whether a `.dockerignore` leaves a path of the repository out. Only what ours uses: names, `*`, `**` before a name, a slash at the end. */
export function isIgnored(path: string, ignore: string): boolean {
  const patterns = ignore.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return patterns.some((pattern) => {
    const [, anywhere, name] = /^(\*\*\/)?(.*?)\/?$/.exec(pattern)!;
    const source = name!.replaceAll(/[.+^${}()|[\]\\]/g, String.raw`\$&`).replaceAll('*', '[^/]*');
    return new RegExp(`^${anywhere === undefined ? '' : '(?:.*/)?'}${source}(?:/|$)`).test(path);
  });
}
