/** The kinds of ask that a person at a terminal or at a page can answer. */
export const ANSWERED_KINDS = ['permission', 'choice', 'question', 'confirm', 'text'] as const
