export type Theme = 'system' | 'light' | 'dark';

export const chosenTheme = (): Theme => {
  const stored = localStorage.getItem('theme');
  return stored === 'light' || stored === 'dark' ? stored : 'system';
};

/** Of the page, and remembered. `system` follows the browser, in CSS alone. */
export function applyTheme(theme: Theme): void {
  if (theme === 'system') {
    localStorage.removeItem('theme');
    delete document.documentElement.dataset['theme'];
  } else {
    localStorage.setItem('theme', theme);
    document.documentElement.dataset['theme'] = theme;
  }
}
