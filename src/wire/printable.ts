/** Texts of agents and other clients, as terminals and pages may show them. */

/** Signs that join or style what stands before them: emoji, and letters of these scripts. */
const JOINING = ['Arabic', 'Bengali', 'Devanagari', 'Gujarati', 'Kannada', 'Malayalam', 'Sinhala']
const JOINED = JOINING.map((script) => String.raw`\p{Script=${script}}`).join('')
const PICTURE = String.raw`\p{Extended_Pictographic}`
const KEPT = [
  String.raw`(?<=${PICTURE})[\uFE0E\uFE0F]`,
  String.raw`(?<=[${PICTURE}\p{Emoji_Modifier}\uFE0F])\u200D(?=${PICTURE})`,
  String.raw`(?<=[${JOINED}])[\u200C\u200D](?=[${JOINED}])`,
].join('|')

/**
 * A character that could control the terminal, change the direction of its text, end a line, or not
 * be seen. By the character, not by the sequence: one that arrives in two parts does not pass.
 */
const HOSTILE = String.raw`[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]`
const IN_LINE = new RegExp(`(?!${KEPT})${HOSTILE}`, 'gu')
const IN_LINES = new RegExp(`(?!${KEPT}|[\\n\\t])${HOSTILE}`, 'gu')

/** One line of text from others, without hostile characters. */
export const printable = (text: string): string => text.replace(IN_LINE, '\uFFFD')

/** The same for a text of many lines. */
export const printableLines = (text: string): string =>
  text.replaceAll('\r\n', '\n').replace(IN_LINES, '\uFFFD')

/** The same JSON with its hostile characters escaped. */
export const printableJson = (json: string): string =>
  json.replace(new RegExp(HOSTILE, 'gu'), (character) =>
    Array.from({ length: character.length }, (_, index) => {
      const code = character.charCodeAt(index).toString(16)
      return `\\u${code.padStart(4, '0')}`
    }).join(''),
  )
