<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<!-- Makes HTML of a book: a table of contents, numbered chapters, references by their chapter's title. -->
<xsl:output method="html" indent="yes"/>
<xsl:key name="chapter" match="chapter" use="@id"/>
<xsl:variable name="small" select="'abcdefghijklmnopqrstuvwxyz'"/>
<xsl:variable name="large" select="'ABCDEFGHIJKLMNOPQRSTUVWXYZ'"/>
<xsl:template match="/book">
  <html><body>
    <ul>
      <xsl:for-each select="chapter">
        <xsl:sort select="title"/>
        <li><a href="#{@id}"><xsl:value-of select="title"/></a></li>
      </xsl:for-each>
    </ul>
    <xsl:apply-templates/>
  </body></html>
</xsl:template>
<xsl:template match="chapter">
  <h1 id="{@id}"><xsl:number/>. <xsl:value-of select="title"/></h1>
  <xsl:apply-templates select="para"><xsl:sort select="@kind"/></xsl:apply-templates>
</xsl:template>
<xsl:template match="para"><p class="{@kind}"><xsl:apply-templates/></p></xsl:template>
<xsl:template match="em"><b><xsl:value-of select="translate(., $small, $large)"/></b></xsl:template>
<xsl:template match="ref"><a href="#{@to}"><xsl:value-of select="key('chapter', @to)/title"/></a></xsl:template>
</xsl:stylesheet>
