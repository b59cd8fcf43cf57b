/** The kinds of ask that a person at a terminal or at a page can answer. */
export const ANSWERED_KINDS = ['permission', 'choice', 'question', 'confirm', 'text'] as const

/** Other arguments for what is asked, as a person has typed them; null: this is no JSON object. */
export function objectIn(text: string): object | null {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && !Array.isArray(value) ? value : null
  } catch {
    return null
  }
}
