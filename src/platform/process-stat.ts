/**
 * The fields of `/proc/PID/stat` behind the name, which may have spaces and brackets: the first one is the state (proc(5), field 3). Shorter
 * for another text.
 */
export const statFields = (text: string): readonly string[] => text.slice(text.lastIndexOf(')') + 2).split(' ');
